"""The attacks of tests/attacks, for hours: what held, how often, and what did not.

    python benchmarks/attacks.py --hours 2 --seed 7

Each attack takes its turn, in a folder of its own. One JSON line per attack and turn: attempts so
far, failures so far, and the first of them in full. Exit status 1 if there was any.
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "attacks"))

from harness_files import ATTACKS as ON_FILES
from harness_ledger import ATTACKS as ON_THE_LEDGER
from harness_ledger import MISSING
from parameter_fuzz import calls


def on_parameters(_: Path, rng: random.Random) -> Iterator[str | None]:
    """Every estimator, with parameters that nobody means."""
    return (call.problem() for call in calls(rng))


ATTACKS: dict[str, Callable[[Path, random.Random], Iterator[str | None]]] = {
    **ON_FILES,
    "parameters": on_parameters,
    **({} if MISSING else ON_THE_LEDGER),
}

TURN = 50
"""Attempts before the next attack has its turn."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--hours", type=float, default=1.0)
    options.add_argument("--seed", type=int, default=secrets.randbits(32))
    asked = options.parse_args()
    warnings.simplefilter("error")  # as in the tests
    rng, until = random.Random(asked.seed), time.monotonic() + 3600 * asked.hours
    tried: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    while time.monotonic() < until:
        for name, attack in ATTACKS.items():
            seed = rng.randrange(2**32)
            with tempfile.TemporaryDirectory() as home:
                attempts = list(islice(attack(Path(home), random.Random(seed)), TURN))
            found = [problem for problem in attempts if problem]
            tried[name] += TURN
            failed[name] += len(found)
            line = {"attack": name, "attempts": tried[name], "failures": failed[name]}
            print(
                json.dumps(line | ({"seed": seed, "first": found[0]} if found else {})), flush=True
            )
            if time.monotonic() > until:
                break
    print(json.dumps({"attempts": tried.total(), "failures": failed.total(), "seed": asked.seed}))
    sys.exit(bool(failed.total()))


if __name__ == "__main__":
    main()
