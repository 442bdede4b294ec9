"""Nobody is trusted: each household reports its day once, with noise added in the meter.

    python examples/devices.py

The utility wants three sums of a day's 24 hours. An encoder that knows so spends the noise where
those sums do not look; one that does not, spreads it over everything.
"""

from __future__ import annotations

import numpy as np

import tacit


def days(n: int, rng: np.random.Generator) -> np.ndarray:
    """Loads by hour: a base, a morning peak and an evening peak, each of its own height."""
    hours = np.arange(24)
    peaks = np.stack([np.exp(-(((hours - at) / 3.0) ** 2)) for at in (12, 8, 19)])
    return rng.gamma(4.0, 0.25, (n, 3)) @ peaks + rng.normal(0, 0.2, (n, 24))


def main() -> None:
    """Prints the error of the three sums, from reports by two encoders."""
    rng = np.random.default_rng(0)
    public, households = days(2000, rng), days(2000, rng)
    wanted = np.repeat(np.eye(3), 8, axis=1)  # night, day, evening: sums of eight hours
    for strategy in ("task-aware", "task-agnostic"):
        encoder = tacit.TaskAwareEncoder(tacit.Budget(8.0, 0.0), strategy=strategy)
        encoder.fit(public, target=wanted)
        reports = encoder.transform(households)  # on the device: clipped and noised, once
        decoded = encoder.inverse_transform(reports)
        error = np.mean(((decoded - households) @ wanted.T) ** 2)
        print(f"{strategy:14} squared error {error:.3f}")
    print(encoder.guarantee_)


if __name__ == "__main__":
    main()
