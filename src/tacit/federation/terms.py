"""The terms of a run: what everybody confirms, and signs, before anybody's data are touched.

One document, the same at the coordinator and at every site: who takes part with which tasks, the
declared columns and ranges, the budget, the learner with its parameters, and the code. Every site
has a copy of its own, got before and on another way than the run's messages; a coordinator that
proposes something else is refused, and told what differs.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

import tacit
from tacit import files, folder
from tacit._version import __version__
from tacit.engine import CURATOR
from tacit.errors import InvalidInput
from tacit.estimator import MultiTaskEstimator
from tacit.federation.noise_shares import hidden_promise, planned_budget
from tacit.json_converter import fields_to_json, from_json
from tacit.privacy.budget import Budget, Guarantee
from tacit.privacy.chain import canonical, sha256
from tacit.privacy.gaussian import gaussian_epsilon, gaussian_mu
from tacit.privacy.planning import UNIT
from tacit.privacy.signing import checked_fingerprint
from tacit.tasks import Schema, canonical_label, task_codes
from tacit.tasks.labels import require_one_text

FILE = "terms.json"
FORMAT = "tacit terms 1"
NEURAL = "neural.FederatedMTL"
"""The learner whose models are networks: ``parameters["model"]`` describes them."""

Way = Literal["rows", "updates", "sums", "silos", "arrivals", "reports"]
"""What leaves a site: each task's row or each client's update, to a coordinator that is trusted;
masked sums; releases of silos, or of nodes that nobody waits for; reports through an encoder."""

ASKED: Mapping[Way, tuple[str, ...]] = {
    "rows": ("contribute", "finish", "seal", "score"),
    "updates": ("contribute", "finish", "seal"),
    "sums": ("secrets", "masked", "unmask", "finish", "seal"),
    "silos": ("release", "finish", "seal"),
    "arrivals": ("step", "finish", "seal"),
    "reports": ("report",),
}
"""What a site answers once it agreed: by its own terms, whoever asks. A row or a score without
noise is for a coordinator that the terms trust, and for no other."""


@cache
def code_digest() -> str:
    """Of all that is installed of tacit: two parties with the same one run the same code."""
    home, whole = Path(tacit.__file__).parent, hashlib.sha256()
    for source in sorted(home.rglob("*.py")):
        whole.update(source.relative_to(home).as_posix().encode() + b"\0")
        whole.update(hashlib.sha256(source.read_bytes()).digest())
    return whole.hexdigest()


@dataclass(frozen=True)
class Member:
    """A site: the tasks whose rows it has, and the fingerprint of the key that it signs with."""

    tasks: tuple[Hashable, ...]
    key: str


@dataclass(frozen=True)
class Terms:
    """Everything that is agreed on. What is not in here, nobody else decides for a site."""

    run: str
    learner: str  # one of tacit's public names
    parameters: Mapping[str, Any]  # of the learner, as JSON
    budget: Budget
    schema: Schema
    sites: Mapping[str, Member]
    coordinator: str  # the fingerprint of the key that signs the certificate
    dataset: str = "default"
    columns: Mapping[str, str] = field(default_factory=dict)  # "task" and "target", of tables
    noise: Literal["secure", "simulated"] = "secure"
    seed: int | None = None  # of simulated noise
    seconds: float = 600.0  # how long a round waits for answers
    fewest: int | None = None  # honest sites that are heard; None: the coordinator sees each row
    encoder: str | None = None  # the digest of what devices report through (S4)
    scores: float = 0.0  # of μ², what one noisy mean of all tasks' scores may spend; 0: no mean
    holdout: float = 0.0  # the share of a task's rows that its site keeps for scores at home
    version: str = __version__
    code: str = field(default_factory=code_digest)

    def __post_init__(self) -> None:
        if not self.sites:
            raise InvalidInput("the terms name no site")
        require_one_text([task for site in self.sites.values() for task in site.tasks], "sites")
        for name, site in self.sites.items():
            if not site.tasks or name == CURATOR:
                raise InvalidInput(f"site {name!r} has no task, or the name of the coordinator")
            checked_fingerprint(site.key)
        if len({site.key for site in self.sites.values()}) < len(self.sites):
            raise InvalidInput(
                "two sites have one key: they would be counted as two who are honest"
            )
        if not 0 < self.seconds < 10**7:
            raise InvalidInput(f"a round waits between 0 and 10⁷ seconds, got {self.seconds}")
        if self.fewest is not None and not 2 <= self.fewest <= len(self.sites):
            raise InvalidInput(f"fewest must be 2 to {len(self.sites)} sites, got {self.fewest}")
        if not 0 <= self.scores < 1 or (self.scores and self.way != "rows"):
            raise InvalidInput(
                "scores must be in [0, 1), and 0 unless a coordinator is trusted with each task's "
                f"row, got {self.scores}"
            )
        if not 0 <= self.holdout < 1:
            raise InvalidInput(f"holdout must be in [0, 1), got {self.holdout}")

    @cached_property
    def labels(self) -> tuple[Hashable, ...]:
        """Of all tasks, in the order in which one process would have them."""
        every = [task for site in self.sites.values() for task in site.tasks]
        return task_codes(every, len(every))[0]

    @cached_property
    def places(self) -> dict[str, list[int]]:
        """Which of all tasks are a site's, in the order of ``labels``."""
        where = {canonical_label(label): i for i, label in enumerate(self.labels)}
        return {
            name: sorted(where[canonical_label(task)] for task in site.tasks)
            for name, site in self.sites.items()
        }

    @cached_property
    def way(self) -> Way:
        """What may leave a site, which follows from the terms alone: neither side is told it by the
        other. InvalidInput where the learner has a way of its own, in one process."""
        if self.encoder is not None:
            return "reports"
        engines: Literal["rounds", "updates", "silos", "arrivals"] | None = self.model()._engines
        if engines is None:
            raise InvalidInput(f"{self.learner} with these parameters runs in one process only")
        if engines == "rounds":
            return "rows" if self.fewest is None else "sums"
        if self.fewest is not None:
            raise InvalidInput(
                "fewest hides rows of linear learners in sums; networks send updates, and sites "
                "that trust nobody send releases alone"
            )
        return engines

    def model(self, ledger: Any = None) -> Any:
        """The learner, not fitted; it spends from this ledger."""
        kind = getattr(tacit, self.learner) if self.learner in tacit.__all__ else None
        more = {}
        if self.learner == NEURAL:
            kind, more = tacit.neural.FederatedMTL, self._module()
        elif not (isinstance(kind, type) and issubclass(kind, MultiTaskEstimator)):
            raise InvalidInput(f"{self.learner!r} is not a learner of tacit")
        try:
            model: Any = kind(
                **{**self.parameters, **more},
                budget=self.planned_budget,
                ledger=ledger,
                noise=self.noise,
                run=self.run,
                random_state=self.seed,
            )
        except TypeError as error:
            raise InvalidInput(f"the parameters of {self.learner}: {error}") from None
        self._require_steady_split(model._unit())
        if self.fewest is not None:
            model._promise = hidden_promise(len(self.sites), self.fewest)
        return model

    def load(self, place: Path) -> Any:
        """The learner with the models in a folder of this run."""
        return self.model()._filled(*folder.read(place))

    def _require_steady_split(self, unit: Guarantee) -> None:
        """Which rows are held out follows from how many there are. Where an example may be absent,
        that would deal all others of its task anew, which no noise was made for."""
        if self.holdout and self.budget.neighbours != "replace" and unit.unit != UNIT.unit:
            raise InvalidInput(
                f"holdout is {self.holdout} where {unit.unit} may be absent, and its absence would "
                'change which others are held out: use holdout = 0, or neighbours = "replace"'
            )

    def _module(self) -> dict[str, Any]:
        """The network that the parameters describe, and the declared classes."""
        import torch

        from tacit.encoders.neural.modules import network

        described = {
            "hidden": [],
            "activation": "relu",
            "seed": 0,
            **self.parameters.get("model", {}),
        }
        classes = self.schema.classes
        widths = len(self.schema.feature_names_out), 1 if classes is None else len(classes)
        try:
            sizes = (widths[0], *map(int, described.pop("hidden")), widths[1])
            coins = torch.Generator().manual_seed(int(described.pop("seed")))
            made = network(sizes, generator=coins, **described)
        except (LookupError, TypeError, ValueError) as error:
            raise InvalidInput(f"the network of {self.learner}: {error}") from None
        return {"model": made, "classes": classes}

    @property
    def planned_budget(self) -> Budget:
        """What the learner's events may spend; noise in shares needs a part of δ for itself, and a
        mean of scores a part of μ²."""
        if self.fewest is not None:
            return planned_budget(self.budget)
        if not self.scores:
            return self.budget
        mu = gaussian_mu(self.budget.epsilon, self.budget.delta) * math.sqrt(1 - self.scores)
        return replace(self.budget, epsilon=gaussian_epsilon(self.budget.delta, mu))

    @property
    def mu_of_scores(self) -> float:
        """What the learner leaves of the budget, as μ-GDP; rounded down."""
        budgets = (self.budget, self.planned_budget)
        whole, planned = (gaussian_mu(each.epsilon, each.delta) for each in budgets)
        return math.sqrt(whole**2 - planned**2) * (1 - 1e-6)

    def require_secure_noise(self) -> None:
        """InvalidInput where sites that trust nobody would draw noise that a seed reproduces."""
        if self.noise != "secure":
            raise InvalidInput(
                "sites that trust nobody draw secure noise, and the terms say simulated"
            )

    def installed(self) -> bool:
        """Whether the code of this process is the one that was agreed on."""
        return (self.version, self.code) == (__version__, code_digest())

    # --- as a document -------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return dict(self._document)

    @cached_property
    def _document(self) -> dict[str, Any]:
        return {"format": FORMAT, **fields_to_json(self)}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Terms:
        """Inverse of to_dict; InvalidInput if it is none."""
        given = dict(document)
        if given.pop("format", None) != FORMAT:
            raise InvalidInput(f"expected {FORMAT!r}, got {document.get('format')!r}")
        return from_json(cls, given, "terms")

    @cached_property
    def digest(self) -> str:
        """By which every message names the terms that it belongs to."""
        return sha256(canonical(self._document).encode())

    @cached_property
    def _text(self) -> bytes:
        return folder.json_text(self._document, FILE)

    def write(self, directory: Path) -> None:
        """As terms.json."""
        files.replace_file(directory / FILE, self._text)

    @classmethod
    def read(cls, directory: Path) -> Terms:
        """Inverse of write."""
        return cls.from_dict(folder.read_json(directory / FILE))


def differences(mine: Mapping[str, Any], proposed: Mapping[str, Any]) -> list[str]:
    """The names of what is not the same in two documents of terms.

    >>> differences({"learner": "LowRank", "seed": 1}, {"learner": "GroupSparse", "seed": 1})
    ['learner']
    """
    names = sorted({*mine, *proposed})
    return [name for name in names if mine.get(name) != proposed.get(name)]
