"""TaskAwareEncoder: local privacy for a linear task (S4).

Jiangnan Cheng, Ao Tang, Sandeep Chinchali, "Task-aware Privacy Preservation for Multi-dimensional
Data", ICML 2022 (arXiv 2110.02329).

**Symbols.** x, n → a row of X; K → ``target``; μ_x → ``mean``; L, h, P → ``Spectrum``; λ_i →
``eigenvalues``; σ_i² → ``squares`` (``water_filling``); E, D → ``Design.encoder``,
``Design.decoder``; σ_w² → ``mechanism.variance``; r → ``radius``; Z → ``dimensions``.

**Differs from the paper in**

1. The radius is declared and every report clipped to it where the noise is added: the paper's
   sensitivity is that of the samples, and the next user is none of them (docs/privacy.md, F).
   ``as_published=True`` keeps it, with ``proven=False``.
2. The mechanism is chosen: with PrivUnitG the noise of a coordinate does not grow with their
   number, with Laplace it grows linearly; for one number the staircase falls like e^−2ε/3.
3. Radius, dimension, map and centre of the ball minimise the loss predicted on the rows given to
   fit, clipping bias included; the paper takes the farthest sample's radius.
4. The decoder is the best linear one for clipped reports; without clipping it is Proposition 1's.
5. Σ may be singular; several weighted tasks are stacked into one K (the paper's future work).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from tacit.arrays import FloatArray
from tacit.encoders.base import Encoder
from tacit.encoders.closed_forms import Spectrum
from tacit.encoders.design_search import Wanted
from tacit.encoders.designs import (
    chosen_design,
    exact_design,
    expected_loss,
    published_design,
    stacked_task,
    task_spectrum,
)
from tacit.encoders.domain import Domain
from tacit.encoders.mechanism_choice import LocalName, named
from tacit.encoders.networks import Design
from tacit.parameters import Positive, learner
from tacit.privacy.budget import Budget


@learner
class TaskAwareEncoder(Encoder):
    """Reports that keep what a linear task needs: clip, noise, one vector a user.

    ``fit`` takes rows of volunteers, treated as public, and the task K: y = Kx with squared loss,
    or ``[(K, weight), …]`` for several tasks at once; without one the task is x itself.
    ``transform`` gives privatised reports, ``inverse_transform`` estimates of x from them.

    Parameters
    ----------
    budget: what all reports of one user may reveal together; None: reports without noise.
    mechanism: "auto", or one of "laplace", "knorm", "privunit", "gaussian", "staircase".
    strategy: "task-aware", or a benchmark of S4: "task-agnostic", "privacy-agnostic".
    dimensions: the most coordinates of a report; None: as many as help.
    radius: "auto", or the ball's radius in units of the root mean square length of φ.
    reports: how often a user may report; each report gets its share of the budget.
    ledger: None (in memory), a path or a Ledger; ``transform(X, user=labels)`` charges it.
    ranges: a declared domain {column: (low, high)}, or "from-data" (the rows are public).
    as_published: S4's sensitivity of the samples; ``proven=False``.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 3)) * [3.0, 1.0, 1.0]
    >>> encoder = TaskAwareEncoder(Budget(4.0, 0.0)).fit(X, target=[[1.0, 0.0, 0.0]])
    >>> encoder.transform(X[:2], user=["ann", "bob"]).shape
    (2, 1)
    >>> encoder.mechanism_.event("replace"), encoder.guarantee_.proven
    (Pure(epsilon=4.0), True)
    """

    _learner: ClassVar = "TaskAwareEncoder"
    _sparse: ClassVar = True
    _kept: ClassVar = ("eigenvalues_",)

    mechanism: Literal["auto"] | LocalName = "auto"
    radius: Literal["auto"] | Positive = "auto"
    ranges: Mapping[Any, Any] | Literal["from-data"] | None = None

    def fit(self, X: Any, y: Any = None, *, target: Any = None) -> TaskAwareEncoder:
        """Designs the encoder for the task from rows that are public; nothing is charged."""
        self._require_parameters()
        X = self._rows(X, fitting=True)
        domain = Domain.declared(self.ranges, X, getattr(self, "feature_names_in_", None))
        X = domain.clipped(X)
        K = stacked_task(target, X.shape[1])
        found = task_spectrum(X, K)
        self._remember(domain, self._design(X, K, found))
        self.eigenvalues_ = found.eigenvalues
        self.predicted_loss_ = expected_loss(self.design_, X, K)
        return self

    def _design(self, X: Any, K: FloatArray, found: Spectrum) -> Design:
        self.choices_: list[dict[str, Any]] = []
        if self.budget is None:
            return exact_design(X, found, self._most())
        wanted = self._wanted(self.budget)
        if self.as_published:
            design = published_design(X, found, wanted)
        else:
            design, ranked = chosen_design(X, K, found, wanted)
            self.choices_ = [candidate.summary() for candidate in ranked]
        if design.mechanism is None:
            warnings.warn(
                f"no dimension survives at {self.budget}: a report would tell the task nothing, "
                "so nothing is reported and everybody is estimated by the mean",
                stacklevel=3,
            )
        return design

    def _wanted(self, budget: Budget) -> Wanted:
        return Wanted(
            budget=budget,
            names=named(self.mechanism, budget, int(self.reports)),
            strategy=self.strategy,
            size=self._most(),
            radius=None if self.radius == "auto" else float(self.radius),
            reports=int(self.reports),
        )

    def _most(self) -> int | None:
        return None if self.dimensions is None else int(self.dimensions)
