"""python encode.py encoder.json < rows.jsonl > reports.jsonl       (one JSON list a line)

Cut x to the declared domain, apply the layers, clip to the ball, add noise from the operating
system, report a multiple of a public grid. Send nothing else, not even whether x could be read.
"""

import json
import math
import random
import statistics
import sys
from itertools import count
from operator import mul
from typing import Any

RESOLUTION = 2**26  # grid points in one scale of the noise
COINS = random.SystemRandom()
Vector = list[float]
ACTIVATIONS: dict[str, Any] = {"identity": float, "tanh": math.tanh}
ACTIVATIONS |= {"relu": lambda x: max(x, 0.0), "sigmoid": lambda x: (1 + math.tanh(x / 2)) / 2}


def clipped(h: Vector, radius: float) -> Vector:
    """h inside the ball, by a hair: rounding never leaves it. What is not finite becomes zero."""
    norm, limit = math.hypot(*h), radius * (1 - 2.0**-40)
    return [x * (limit / max(limit, norm)) if math.isfinite(norm) else 0.0 for x in h]


def happens(numerator: int, denominator: int) -> bool:
    """True with probability exp(−numerator/denominator), exactly, for a quotient in [0, 1]."""
    k = 1
    while COINS.randrange(denominator * k) < numerator:
        k += 1
    return k % 2 == 1


def discrete_laplace() -> int:
    """k with P(k) ∝ exp(−|k|/RESOLUTION), exactly (Canonne, Kamath, Steinke 2020, Algorithm 2)."""
    while True:
        size, minus = COINS.randrange(RESOLUTION), COINS.getrandbits(1)
        if happens(size, RESOLUTION):
            while happens(1, 1):
                size += RESOLUTION
            if size or not minus:
                return -size if minus else size


def leaning(t: Vector, mechanism: dict[str, Any]) -> Vector:
    """PrivUnitG: a normal vector whose part along (t, the rest) is above the threshold, or not."""
    v = [*t, math.sqrt(max(0.0, 1.0 - sum(map(mul, t, t))))]
    z = [COINS.gauss(0.0, 1.0) for _ in v]
    over, tail = COINS.random() < mechanism["above"], mechanism["tail"]
    share = (1.0 - COINS.random()) * (tail if over else 1.0 - tail)
    shift = statistics.NormalDist().inv_cdf(share) * (-1.0 if over else 1.0) - sum(map(mul, z, v))
    return [a + shift * b for a, b in zip(z[:-1], t, strict=True)]


def staircase(epsilon: float, step: float, tall: float, width: float) -> float:
    """±(whole stairs, with ratio e^−ε, and a point of the tall or of the low part of the last)."""
    whole = next(k for k in count() if COINS.random() >= math.exp(-epsilon))
    low, high = (0.0, step) if COINS.random() < tall else (step, 1.0)
    return COINS.choice((-1, 1)) * width * (whole + COINS.uniform(low, high))


def noisy(h: Vector, mechanism: dict[str, Any]) -> Vector:
    """The report on a vector inside the ball, in multiples of the grid."""
    name, scale, grid = mechanism["name"], mechanism["scale"], mechanism["scale"] / RESOLUTION
    if name == "LocalLaplace":  # exact, in integers
        pairs = list(zip(h, mechanism["weights"], strict=True))
        return [(int(x * w / grid) + discrete_laplace()) * grid / w for x, w in pairs]
    if name == "LocalGaussian":
        return [(int(x / grid) + round(COINS.gauss(0.0, RESOLUTION))) * grid for x in h]
    if name == "LocalStaircase":
        return [round((x + staircase(*mechanism["stairs"])) / grid) * grid for x in h]
    if name == "PrivUnitG":
        u = leaning([x / mechanism["radius"] for x in h], mechanism)
        return [round(x * RESOLUTION) * grid for x in u]
    b = [COINS.gauss(0.0, 1.0) for _ in h]  # LocalKNorm: a direction, and Gamma(dim, scale)
    stretch = COINS.gammavariate(len(h), scale) / math.hypot(*b)
    return [round((x + y * stretch) / grid) * grid for x, y in zip(h, b, strict=True)]


def encode(x: Any, encoder: dict[str, Any]) -> Vector:
    """One user's report on x, a JSON list; on the centre of the ball if it cannot be read."""
    try:
        x = [min(max(v, a), b) for v, (a, b) in zip(json.loads(x), encoder["domain"], strict=True)]
        for layer in encoder["layers"]:
            f, rows = ACTIVATIONS[layer["activation"]], layer["weight"]
            x = [f(sum(map(mul, row, x)) + b) for row, b in zip(rows, layer["bias"], strict=True)]
    except (TypeError, ValueError, RecursionError):
        x = [0.0] * len(encoder["layers"][-1]["bias"])
    return noisy(clipped(x, encoder["mechanism"]["radius"]), encoder["mechanism"])


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        exported = json.load(file)
    for line in sys.stdin:
        print(json.dumps(encode(line, exported)))
