"""What came of a figure: its numbers, and a verdict on each of its claims."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tacit.experiments.declared import SAID_OF, Experiment, Judgement, Statement
from tacit.experiments.measured import Measured


@dataclass(frozen=True)
class Reproduction:
    """A figure that was run."""

    figure: Experiment
    measured: Measured
    quick: bool
    findings: tuple[tuple[Statement, Judgement], ...]

    @classmethod
    def of(cls, figure: Experiment, measured: Measured, *, quick: bool) -> Reproduction:
        """With its claims judged."""
        judged = tuple((claim, claim.check(measured)) for claim in figure.claims)
        return cls(figure, measured, quick, judged)

    @property
    def repetitions(self) -> int:
        """How often each setting was measured."""
        return len(self.figure.seeds(quick=self.quick))

    def verdicts(self) -> list[dict[str, Any]]:
        """Each claim, what came of it, and the number that it turns on."""
        return [
            {
                "claim": claim.sentence,
                "said_by": "tacit" if claim.ours else "the paper",
                "verdict": finding.verdict,
                "size": _finite(finding.size),
                "numbers": finding.numbers,
            }
            | ({"why": why} if (why := claim.explained(finding)) else {})
            for claim, finding in self.findings
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything, with means and bands."""
        figure, measured = self.figure, self.measured
        return {
            "figure": figure.name,
            "title": figure.title,
            "shows": figure.shows,
            "quick": self.quick,
            "repetitions": self.repetitions,
            "cpu_seconds": round(measured.seconds, 1),
            "verdicts": self.verdicts(),
            "curves": [
                {
                    "panel": panel,
                    "curve": curve,
                    "kind": (kind := figure.curves.get(curve, "other")),
                    "guarantee": SAID_OF[kind],
                    "points": [
                        [m.x, _finite(m.mean), _finite(m.half_width), m.repetitions]
                        for m in measured.means(curve, panel)
                    ],
                }
                for panel in measured.panels
                for curve in measured.curves(panel)
            ],
            "made": [{**made, "cells": cells} for made, cells in measured.made],
        }


def _finite(value: float) -> float | None:
    """JSON knows no infinity."""
    return value if math.isfinite(value) else None
