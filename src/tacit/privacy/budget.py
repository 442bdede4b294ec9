"""What may be spent (Budget) and what was promised (Guarantee)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from tacit.parameters import Between, Checked, Zero
from tacit.rounding import rounded_up

Neighbours = Literal["replace", "zero-out"]
"""Two data sets are neighbours if one unit *becomes any other* ("replace"), or if one unit's
contribution *becomes null* ("zero-out")."""


A_TASK = "a whole task: its data and its model"
OTHER_TASKS = "all other tasks together, who see every release and know their own data"
"""Whom joint DP protects, and from whom."""


@dataclass(frozen=True)
class Budget(Checked):
    """The most that the releases of one run may reveal about one unit.

    delta = 0 is allowed with pure mechanisms.

    >>> Budget(1)
    Budget(epsilon=1.0, delta=1e-05, neighbours='replace')
    """

    epsilon: Annotated[float, Between(1e-9, 1e9)]
    delta: Annotated[float, Between(1e-100, 0.999999)] | Zero = 1e-5
    neighbours: Neighbours = field(default="replace", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "delta", float(self.delta))

    def __str__(self) -> str:
        epsilon, delta = rounded_up(self.epsilon, 6), rounded_up(self.delta, 6)
        return f"(epsilon={epsilon}, delta={delta}, {self.neighbours})"


@dataclass(frozen=True)
class Guarantee:
    """A privacy promise, said in full. It belongs to a run and travels as certificate.json.

    >>> g = Guarantee(epsilon=1.0, delta=1e-5, unit="a task", neighbours="replace",
    ...               adversary="all other tasks together", accountant="exact Gaussian DP")
    >>> g.proven
    True
    """

    epsilon: float
    delta: float
    unit: str
    neighbours: str
    adversary: str
    not_covered: tuple[str, ...] = ()
    accountant: str = ""
    secure_noise: bool = True
    proven: bool = True
    reason: str = ""
    runs: int = 1  # on these units, this one among them; epsilon and delta are of all of them
    after_output: bool = False  # their sum was not fixed before the first output
    run_epsilon: float = 0.0  # of this run by itself
    run_delta: float = 0.0

    def __str__(self) -> str:
        claim = "" if self.proven else " (claimed, NOT proven)"
        lines = [
            f"({rounded_up(self.epsilon)}, {rounded_up(self.delta)})-DP{claim} for {self.unit}",
            *self._counted(),
            f"  neighbours   {self.neighbours}",
            f"  adversary    {self.adversary}",
            f"  accountant   {self.accountant or 'none'}",
            f"  secure noise {'yes' if self.secure_noise else 'NO'}",
        ]
        lines += [f"  not covered  {item}" for item in self.not_covered]
        if self.reason:
            lines.append(f"  reason       {self.reason}")
        return "\n".join(lines)

    def _counted(self) -> list[str]:
        """This run's part, where there are others."""
        if self.runs <= 1:
            return []
        whole = (
            "the sum was chosen after seeing output"
            if self.after_output
            else "all within a lifetime cap that was fixed before the first"
        )
        this = f"({rounded_up(self.run_epsilon)}, {rounded_up(self.run_delta)})"
        return [f"  counted      {self.runs} runs on these units, this one {this}; {whole}"]
