"""Checks that claims are made of: each compares means of curves and says what it found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import numpy as np

from tacit.errors import InvalidInput
from tacit.experiments.declared import Judgement, Statement, Verdict
from tacit.experiments.measured import Measured

Check = Callable[[Measured], Judgement]
Better = Literal["lower", "higher"]
Place = tuple[str, float | str | None]
"""Panel and x."""

NO_WORSE = 0.01
"""Ours may be this share behind before it counts as worse: a tie is no loss."""


def verdict(holds: Sequence[bool]) -> Verdict:
    """Everywhere, somewhere, nowhere.

    >>> verdict([True, False])
    'holds in part'
    """
    if all(holds):
        return "holds"
    return "holds in part" if any(holds) else "does not hold here"


def below(
    first: str, second: str, *, panel: str | None = None, at: Sequence[float | str] = ()
) -> Check:
    """The mean of the first curve is below that of the second, at every x both have."""
    return _compared(first, second, lambda ratio: ratio < 1, panel, at)


def mostly_below(first: str, second: str) -> Check:
    """Below it at three quarters of the x that both have, or at more."""

    def check(measured: Measured) -> Judgement:
        found = below(first, second)(measured)
        places = _shared(measured, first, second, None, ())
        good = [_ratio(measured, first, second, place) < 1 for place in places]
        told: Verdict = "holds" if np.mean(good) >= 0.75 else verdict(good)
        return Judgement(told, found.size, f"{sum(good)} of {len(good)}; {found.numbers}")

    return check


def above(
    first: str, second: str, *, panel: str | None = None, at: Sequence[float | str] = ()
) -> Check:
    """The mean of the first curve is above that of the second, at every x both have."""
    return _compared(first, second, lambda ratio: ratio > 1, panel, at)


def rivals(
    first: str,
    second: str,
    *,
    panel: str | None = None,
    at: Sequence[float | str] = (),
) -> Check:
    """The two differ by at most a tenth of the second."""
    return _compared(first, second, lambda ratio: abs(ratio - 1) <= 0.1, panel, at)


def exceeds(curve: str, level: float) -> Check:
    """The mean is above a number that the paper gives, at every x."""

    def check(measured: Measured) -> Judgement:
        found = [m.mean for p in _panels(measured, curve) for m in measured.means(curve, p)]
        said = f"{curve} from {min(found):.4g} to {max(found):.4g}"
        return Judgement(verdict([mean > level for mean in found]), min(found), said)

    return check


def leads_most_at_first(first: str, second: str) -> Check:
    """In every panel first/second is smaller at the least x than at the largest."""

    def check(measured: Measured) -> Judgement:
        ends = []
        for panel in _panels(measured, first, second):
            places = _shared(measured, first, second, panel, ())
            ends.append([_ratio(measured, first, second, p) for p in (places[0], places[-1])])
        said = "; ".join(f"{a:.3g} at the least, {b:.3g} at the largest" for a, b in ends)
        size = _middle([a / b for a, b in ends])
        return Judgement(verdict([a < b for a, b in ends]), size, f"{first} / {second}: {said}")

    return check


def alike(first: str, second: str) -> Check:
    """At every x first/second differs by at most a tenth from panel to panel."""

    def check(measured: Measured) -> Judgement:
        by_place: dict[float | str | None, list[float]] = {}
        for place in _shared(measured, first, second, None, ()):
            by_place.setdefault(place[1], []).append(_ratio(measured, first, second, place))
        spread = {x: max(ratios) / min(ratios) for x, ratios in by_place.items()}
        said = ", ".join(f"{each:.3g} at {_said(('', x))}" for x, each in spread.items())
        told = verdict([each <= 1.1 for each in spread.values()])
        said = f"{first} / {second}, largest over smallest panel: {said}"
        return Judgement(told, max(spread.values()), said)

    return check


def falls(*curves: str, panel: str | None = None) -> Check:
    """From the first x to the last; in part: not at every step."""
    return _moves(curves, panel, -1)


def rises(*curves: str, panel: str | None = None) -> Check:
    """From the first x to the last; in part: not at every step."""
    return _moves(curves, panel, 1)


def stays(curve: str) -> Check:
    """From the first x to the last it changes by a tenth at most."""

    def check(measured: Measured) -> Judgement:
        curves = [measured.means(curve, panel) for panel in _panels(measured, curve)]
        ends = [(means[0].mean, means[-1].mean) for means in curves]
        ratios = [last / first for first, last in ends]
        said = "; ".join(f"{curve} {first:.4g} to {last:.4g}" for first, last in ends)
        return Judgement(verdict([abs(r - 1) <= 0.1 for r in ratios]), _middle(ratios), said)

    return check


def gains(first: str, second: str, claimed: float, *, at: float | str, panel: str = "") -> Check:
    """1 − first/second at x: holds from nine tenths of what is claimed, in part if positive."""

    def check(measured: Measured) -> Judgement:
        found = 1 - _ratio(measured, first, second, (panel, at))
        told: Verdict = "does not hold here"
        if found > 0:
            told = "holds" if found >= 0.9 * claimed else "holds in part"
        said = f"{found:.1%} at {at}, claimed {claimed:.1%}"
        return Judgement(told, found, said)

    return check


def dips_at(curve: str, wanted: Callable[[float], bool], *, panel: str | None = None) -> Check:
    """At some x that is wanted the curve is below both of its neighbours; in every panel."""

    def check(measured: Measured) -> Judgement:
        found, said = [], []
        for each in _panels(measured, curve) if panel is None else (panel,):
            means = [m for m in measured.means(curve, each) if math.isfinite(m.mean)]
            dips = [
                float(here.x or 0.0)
                for before, here, after in zip(means, means[1:], means[2:], strict=False)
                if here.mean < min(before.mean, after.mean)
            ]
            found.append(any(map(wanted, dips)))
            places = ", ".join(f"{x:.4g}" for x in dips) or "nowhere"
            said.append(f"{curve} dips at {places}{f' ({each})' if each else ''}")
        return Judgement(verdict(found), float(sum(found)), "; ".join(said))

    return check


def ours_no_worse(
    pairs: Iterable[tuple[str, str]],
    better: Better = "lower",
    *,
    sentence: str = "At every ε ours is at least as good as published.",
    why: str = "",
) -> Statement:
    """Within a hundredth, wherever both were measured; ``why`` it is not, where it is not."""
    compared = tuple(pairs)

    def check(measured: Measured) -> Judgement:
        ratios: list[float] = []
        for ours, published in compared:
            places = _shared(measured, ours, published, None, ())
            ratios += [_ratio(measured, ours, published, place) for place in places]
        return _no_worse(ratios, better)

    return Statement(sentence, check, ours=True, why=why)


def ours_no_worse_in_the_end(pairs: Iterable[tuple[str, str]]) -> Statement:
    """Where x is time: the mean over the panels (tasks) of both at the last x, for each pair."""
    compared = tuple(pairs)

    def check(measured: Measured) -> Judgement:
        ratios = []
        for pair in compared:
            panels = _panels(measured, *pair)
            ends = [[measured.means(c, panel)[-1].mean for panel in panels] for c in pair]
            ratios.append(float(np.mean(ends[0]) / np.mean(ends[1])))
        return _no_worse(ratios, "lower")

    return Statement("At every ε ours is at least as good as published.", check, ours=True)


def _no_worse(ratios: Sequence[float], better: Better) -> Judgement:
    good = [r <= 1 + NO_WORSE if better == "lower" else r >= 1 - NO_WORSE for r in ratios]
    worst = max(ratios) if better == "lower" else min(ratios)
    said = f"ours / published from {min(ratios):.4g} to {max(ratios):.4g}; worst {worst:.4g}"
    return Judgement(verdict(good), worst, said)


def _compared(
    first: str,
    second: str,
    good: Callable[[float], bool],
    panel: str | None,
    at: Sequence[float | str],
) -> Check:
    def check(measured: Measured) -> Judgement:
        places = _shared(measured, first, second, panel, at)
        ratios = [_ratio(measured, first, second, place) for place in places]
        said = f"{first} / {second}: {_listed(ratios, places)}"
        return Judgement(verdict([good(r) for r in ratios]), _middle(ratios), said)

    return check


def _moves(curves: Sequence[str], panel: str | None, sign: int) -> Check:
    def check(measured: Measured) -> Judgement:
        steadily, overall, said = [], [], []
        for curve in curves:
            for each in _panels(measured, curve) if panel is None else (panel,):
                means = [m.mean for m in measured.means(curve, each)]
                steadily.append(bool(np.all(sign * np.diff(means) >= 0)))
                overall.append(means[-1] / means[0] if means[0] else math.nan)
                said.append(f"{curve} {means[0]:.4g} to {means[-1]:.4g}")
        moved = [sign * (r - 1) > 0 for r in overall]
        told = verdict(moved)
        if told == "holds" and not all(steadily):
            told = "holds in part"
        return Judgement(told, _middle(overall), "; ".join(said))

    return check


def _panels(measured: Measured, *curves: str) -> tuple[str, ...]:
    return tuple(panel for panel in measured.panels if set(curves) <= set(measured.curves(panel)))


def _shared(
    measured: Measured, first: str, second: str, panel: str | None, at: Sequence[float | str]
) -> list[Place]:
    """Where both were measured; a level curve was measured everywhere."""
    panels = _panels(measured, first, second) if panel is None else (panel,)
    found: list[Place] = []
    for each in panels:
        ours, theirs = measured.places(first, each), measured.places(second, each)
        both = [x for x in ours if x in theirs or None in theirs]
        both = list(theirs) if ours == (None,) else both
        found += [(each, x) for x in both if not at or x in at]
    if not found:
        raise InvalidInput(f"{first!r} and {second!r} were not measured at the same x")
    return found


def _ratio(measured: Measured, first: str, second: str, place: Place) -> float:
    panel, x = place
    one, other = (measured.mean(curve, x, panel).mean for curve in (first, second))
    return one / other if other else math.nan


def _middle(values: Sequence[float]) -> float:
    """One ratio that is far off does not move it."""
    return float(np.median(values))


def _listed(ratios: Sequence[float], places: Sequence[Place]) -> str:
    """Each ratio and where it was found, the ends only if there are many."""
    pairs = [f"{r:.3g} at {_said(place)}" for r, place in zip(ratios, places, strict=True)]
    if len(pairs) > 8:
        worst, best = np.argmax(ratios), np.argmin(ratios)
        return f"from {pairs[best]} to {pairs[worst]}, median {np.median(ratios):.3g}"
    return ", ".join(pairs)


def _said(place: Place) -> str:
    panel, x = place
    where = f"{x:.4g}" if isinstance(x, (int, float)) else str(x or "every x")
    return f"{where} ({panel})" if panel else where
