"""The participants on a device: the same formulas (participant.py), of moments that stay there.

Rows are sent once; a step is computed where their second moments are (tacit/device/moments.py), and
so are its clip, the public grid and the sum in whole numbers (privacy/mechanisms): of a release a
few hundred numbers come back. The curator, the noise, the door and the ledger stay on the host.

**Isolation.** All tasks are computed in passes of one public shape, by operations under which a
slot sees no other (tacit/device/arrays.py). That neither a slot's place nor what is beside it shows
is tried before a private run, with public numbers (``doubt``): one task in every slot, beside
ordinary, huge, infinite and NaN ones and beside idle slots, at every kind of step and at home.
Where it fails, nothing is proven. In the run the engine holds one task, chosen in secret, against
itself alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch

from tacit.arrays import FloatArray, IntArray
from tacit.device.arrays import OnDevice
from tacit.device.installation import installation, steady, strict
from tacit.device.moments import UNIT, Numbers, Passes, Rows, believed, moments_of, slots_for
from tacit.engine import Message, Step
from tacit.errors import InvalidInput
from tacit.estimator import Home
from tacit.learners.shared_prior.lessons import Lessons
from tacit.learners.shared_prior.participant import VOTES, Kept, Tasks, ballots_on
from tacit.learners.shared_prior.posterior_mixture import SCALES, Priors
from tacit.learners.shared_prior.release_schedule import voting_share
from tacit.linear.losses import Squared
from tacit.linear.problems import Problems
from tacit.linear.threads import isolated
from tacit.privacy.mechanisms import GaussianSum
from tacit.privacy.mechanisms.clipping import clip_rows


def device_named(device: str) -> torch.device:
    """Where PyTorch is to compute; "torch-cpu" is its CPU."""
    if device == "torch-cpu":
        return torch.device("cpu")
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise InvalidInput(f"device must be 'cpu' or one that PyTorch knows: {error}") from None
    if found.type != "cuda":
        raise InvalidInput(f"device must be 'cpu', 'cuda' or 'cuda:N', got {device!r}")
    if not torch.cuda.is_available():
        raise InvalidInput(f"device={device!r} was asked for, but this PyTorch finds no CUDA")
    return found


@dataclass
class Device:
    """Where a fit's participants are, and in passes of which shapes: all public but the moments."""

    where: torch.device
    n_tasks: int
    width: int
    _coming: Future[Passes] | None = field(default=None, repr=False)

    @property
    def slots(self) -> int:
        """Of a pass of all tasks."""
        return slots_for(self.n_tasks, self.width)

    @property
    def voters(self) -> int:
        """Of a pass of those whose ballots are asked for, a public sample."""
        share = voting_share(self.n_tasks)
        asked = int(1.1 * share * self.n_tasks) + UNIT
        return self.slots if share == 1 else min(self.slots, slots_for(asked, self.width))

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Nothing that bits depend on changes, inside."""
        with steady(self.where), isolated(), torch.no_grad():
            yield

    def doubt(self) -> str:
        """Why tasks may not be kept apart here; nothing if they are."""
        found = (_doubt(self.where, n, self.width) for n in (self.slots, self.voters))
        return next(filter(None, found), "")

    def expect(self, home: Home) -> None:
        """Has the rows of a fit sent, once, while the host goes on: to open the ledger, say."""

        def sent() -> Passes:
            with self.computing():
                return moments_of(home.problems, self.slots, self.where)

        if self._coming is None:
            pool = ThreadPoolExecutor(1)
            self._coming = pool.submit(sent)
            pool.shutdown(wait=False)

    def moments_of(self, home: Home) -> Passes:
        """Of the rows of a fit, once they are there."""
        self.expect(home)
        assert self._coming is not None
        return self._coming.result()

    def close(self) -> None:
        """Nothing is under way any more, and nothing kept."""
        if self._coming is not None:
            wait([self._coming])
            self._coming = None

    def tasks(self, home: Home, n_tasks: int) -> DeviceTasks:
        """The participant."""
        self.expect(home)
        return DeviceTasks(home, n_tasks, self)


@dataclass(frozen=True)
class DeviceTasks(Tasks):
    """All tasks of this process, their moments on a device."""

    device: Device
    some: Passes | None = None  # of those who were selected; None: of all

    @property
    def moments(self) -> Passes:
        """Of these tasks."""
        return self.device.moments_of(self.home) if self.some is None else self.some

    @property
    def together(self) -> int:
        """All at once: passes have a shape of their own."""
        return max(1, self.home.problems.n_tasks)

    @cached_property
    def speaks(self) -> Any:
        """On the device."""
        return self.moments.speaks

    def scaled(self, target: float, features: FloatArray) -> Any:
        """As moments."""
        return self.moments.scaled(target, features)

    def voters(self, problems: Any, chosen: IntArray) -> Any:
        """In passes of their own shape."""
        return problems.select(chosen, self.device.voters)

    def select(self, units: Sequence[int]) -> DeviceTasks:
        """These tasks only, in this order."""
        if units == range(self.home.problems.n_tasks):
            return self  # with what it keeps
        moments = self.moments
        with self.device.computing():
            some = moments.select(units)
        return replace(self, home=self.home.select(units), some=some)

    def contribute(
        self, step: Step, shared: Message, state: Kept | None
    ) -> tuple[Any, Kept | None]:
        """One row a task, on the device."""
        _ = self.moments  # nothing else is under way there
        with self.device.computing():
            return super().contribute(step, shared, state)


# --- isolation, tried before a private run -------------------------------------------------------

ROWS = 3
KINDS = 9  # of tasks: the one that is looked at, three ordinary, and five wild ones
STEPS = (
    "level", "size", "directions 0", "length 0", "coordinates 1", "variances 0", "information 0",
    "priors",
)  # fmt: skip


@lru_cache(maxsize=16)
def _doubt(where: torch.device, slots: int, width: int) -> str:
    """Why a task's place or its neighbours may show in a pass of this shape."""
    try:
        if apart(Device(where, slots, width), slots):
            return ""
    except Exception as error:  # too little memory, say
        return f"that tasks are kept apart could not be tried on {installation(where)}: {error}"
    return f"what a task says depends on its slot or its neighbours on {installation(where)}"


def apart(device: Device, slots: int) -> bool:
    """Does one task say the same, bit for bit, in every slot, beside others and beside none?"""
    public = public_tasks(device.width)
    others = 1 + np.arange(slots) % (KINDS - 1)
    before: list[torch.Tensor] = []
    for first, beside in ((0, others), (1, np.full(slots, KINDS))):  # the last kind has no rows
        kinds = np.where(np.arange(slots) % 2 == first, 0, beside)
        with device.computing(), strict():
            rows = Rows.of(public, *placed(public, kinds), slots, device.where)
            moments = Passes((believed(rows),))
            for number, said in enumerate(everything(device, moments)):
                mine = said.tensor[first::2].contiguous().view(torch.int64)
                if number == len(before):
                    before.append(mine[0])
                if not torch.equal(mine, before[number].expand_as(mine)):
                    return False
    return True


def placed(public: Problems, kinds: IntArray) -> tuple[IntArray, IntArray]:
    """Where the rows of each slot's task begin, and how many there are."""
    return public.offsets[kinds], public.sizes[kinds]


def public_tasks(width: int) -> Problems:
    """One task, ordinary ones, and such of huge, tiny, infinite and missing numbers; and one
    without rows."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(KINDS, ROWS, width)), rng.normal(size=(KINDS, ROWS))
    X[:, :, -1] = 1.0
    for kind, wild in enumerate((1e60, 1e-60, np.inf, np.nan, 0.0), start=KINDS - 5):
        X[kind, ::2] *= wild
        y[kind] *= wild
    offsets = np.append(np.arange(KINDS + 1), KINDS) * ROWS
    return Problems(X.reshape(-1, width), y.ravel(), offsets)


def everything(device: Device, moments: Passes) -> Iterator[Numbers]:
    """What tasks say in every kind of step, clipped as it leaves; and their models at home."""
    said = public_values(device.width)
    nobody = Problems(np.zeros((0, device.width)), np.zeros(0), np.zeros(1, dtype=np.int64))
    home = Home(nobody, Squared(), np.ones(device.width - 1, dtype=bool), declared_target=True)
    tasks, never = DeviceTasks(home, device.n_tasks, device, moments), GaussianSum(1.0, 1.0)
    kept: Numbers = None
    for name in STEPS:
        kind = name.partition(" ")[0]
        for each in moments.passes:
            some: Any = each
            if kind in VOTES:
                rows: Numbers = ballots_on(Step(name, never), said, Squared(), some)
            else:
                rows = tasks._said(kind, said, some, kept if kind == "length" else None)
                kept = rows[:, -1:] if kind == "directions" else None
            yield rows
            yield OnDevice(clip_rows(rows.tensor, 0.5))
    yield moments.of_each_pass(lambda each: Priors.of(said).at_home(each, Squared()))


def public_values(width: int) -> dict[str, Any]:
    """What might be shared: made-up lessons, and two priors."""
    rng = np.random.default_rng(1)
    frames = np.eye(width) + rng.normal(size=(3, width, width)) / width
    told = replace(
        Lessons.none(width, 1_000, 0.4),
        mean=rng.normal(size=width) / width,
        frame=frames[0],
        direction=rng.normal(size=width) / width,
        beside=rng.normal(size=width) / width,
        information=np.eye(width),
        weight=1.0,
    )
    return vars(told) | {
        "score_width": 2.0,
        "means": rng.normal(size=(2, width)) / width,
        "factors": frames[1:],
        "noise_spreads": np.array([0.4, 1.3]),
        "scale_spread": 1.5,
        "handicap": np.zeros(3),
        "vote": rng.normal(size=(2, 3, len(SCALES))),
    }
