"""What came of joining, on rows that were held out at home: for the trusted side's eyes alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.report.local_view import LocalView

WAYS = {
    "together": "together",
    "alone": "each alone",
    "pooled": "one model for all",
    "public": "models for anybody",
}
"""Together: what each task has at home; the last, where what was released is another model."""


@dataclass(frozen=True)
class Answers:
    """Ways of learning, judged on the same rows, and who gained by joining."""

    noun: str  # what a task is called
    metric: str  # nMSE, or accuracy
    rows: int
    scores: dict[str, float | None]  # by way
    gained: int
    equal: int
    lost: int

    @classmethod
    def of(cls, view: LocalView, noun: str) -> Answers:
        """Those in the measurements."""
        errors = (view.scores[name].errors for name in ("together", "alone"))
        gains = [a - t for t, a in zip(*errors, strict=True) if t is not None and a is not None]
        return cls(
            noun,
            "nMSE" if view.loss == "squared" else "accuracy",
            sum(view.held_out_rows),
            {way: view.scores[way].overall for way in WAYS if way in view.scores},
            sum(gain > 0 for gain in gains),
            sum(gain == 0 for gain in gains),
            sum(gain < 0 for gain in gains),
        )

    @property
    def helped(self) -> bool:
        """Whether joining predicts better than each task alone."""
        together, alone = self.scores["together"], self.scores["alone"]
        if together is None or alone is None:
            return True  # nobody knows otherwise
        return together < alone if self.metric == "nMSE" else together > alone

    def lines(self) -> Iterator[str]:
        """For people."""
        from tacit.report.public_view import plural

        better = "lower" if self.metric == "nMSE" else "higher"
        judged = f"{self.metric}, {better} is better"
        yield f"Private view, on {self.rows:,} rows kept at home ({judged}):"
        for way, score in self.scores.items():
            yield f"  {WAYS[way]:<18} {'not measured' if score is None else f'{score:.3f}'}"
        many = plural(self.noun)
        yield (
            f"  {self.gained:,} {many} predict better together, {self.lost:,} better alone, "
            f"{self.equal:,} equally well"
        )

    def warnings(self) -> list[str]:
        """Where joining did not help, and what might."""
        if self.helped:
            return []
        return [
            "joining did not help: on these rows learning alone predicts as well or better. More "
            "tasks, fewer columns or a larger epsilon might; tacit plan says how much"
        ]

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self) | {"helped": self.helped}
