"""A trusted server and clients with networks: sixty phones read handwriting together.

    python examples/phones.py        (needs PyTorch: pip install 'tacit[neural]')

Each phone has a handful of digits in its own hand. Clipped, noisy sums of their updates make a
shared network; each phone then keeps whatever mixture of it and its own does best on its own rows.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from torch import nn

import tacit
from tacit.neural import FederatedMTL

PHONES, DIGITS = 60, 15


def main() -> None:
    """Prints the accuracy on new digits of phones alone and together."""
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(X))
    mine, new = order[: PHONES * DIGITS], order[PHONES * DIGITS :]
    phone, phone_new = np.arange(len(mine)) % PHONES, np.arange(len(new)) % PHONES

    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    model = FederatedMTL(net, budget=tacit.Budget(8.0, 1e-3, neighbours="zero-out"))
    model.fit(X[mine] / 16, y[mine], task=phone)
    accuracy = model.score(X[new] / 16, y[new], task=phone_new)
    print(f"together, ε = 8   accuracy {accuracy:.3f}")
    print(model.guarantee_)


if __name__ == "__main__":
    main()
