"""Model-protected multi-task learning: the covariance of the task models is what tasks share.

S1: Liang, Liu, Zhou, Jiang, Zhang, Wang, "Model-Protected Multi-Task Learning", TPAMI
(arXiv 1809.06546).
``ModelProtected`` is Algorithm 1, the framework, with a mapping and a learner that you bring;
``LowRank`` is Algorithm 2, ``GroupSparse`` Algorithm 3, ``Decomposed`` Algorithm 4 with the
variants of Remark 4; ``protect_examples`` is Algorithm 5. ``bounds`` has the theorems' numbers.
``as_published=True`` is what is printed, line by line; K and η are then inputs.

**Symbols**

=======  ======================  =============================================================
W        ``models``              one row per task here, (m, D); the intercept, last, stays home
W̃        clipped models          what a mechanism makes of them, norm ≤ K
Σ^(t)    ``covariance``          the release of round t
M^(t)    ``maps``                the shared map of round t: (d, d), or its diagonal
K        ``clip_norm``
λ, η     ``penalty``, ``step``   ηλ is ``level``
β_t      ``accelerated``
μ        ``strong_convexity``    (not the μ of Gaussian DP)
T        ``rounds``
P, Q     ``shared``, ``own``     the two parts of a decomposed model
=======  ======================  =============================================================

**Differs from the paper in**

1. Gaussian noise in svec coordinates with exact Gaussian-DP accounting, or two-sided Wishart noise
   (pure): the published Wishart noise is not private (docs/privacy.md, A). ``as_published=True``
   reproduces it, and the guarantee says that its ε is a claim.
2. Noise that is not positive needs a shift: Σ + cI with the public c = spectral edge of the noise.
   Under high noise all eigenvalues are then large, M → I and tasks stay alone (Proposition 1).
3. Each task divides its loss by its own curvature at home, so that the public step η = 1 suits all
   (linear/standardised.py); a step 1/L from everybody's data would leak. With a declared ``step``
   and ``clip_norm`` the objective is the paper's, and ``penalty`` its λ.
4. Only what is released is clipped; a task goes on with its unclipped model, which is its own.
5. λ, K and T follow public rules. S1 cross-validates all of them without paying.
6. ``refit``: after the last round every task solves to convergence at home under the prior that the
   releases imply (M is a shrinkage with prior covariance Σ^½), at its own penalty, or keeps its
   single-task model, by leave-one-out. Free: nothing of it is released.
7. covariance="tasks" (WᵀW): a task cannot apply the m×m map to others' models, which it may not
   see; it uses its own factor M_ii. Its sensitivity grows with √m (docs/privacy.md, A').
8. Algorithm 5's density is turned the right way up, and its rows are clipped again (C). Its noise
   protects the task's whole model against the curator: ε_dp is task-level already.

**Sensitivity.** √2 K² (replace), K² (zero-out) for WWᵀ and its diagonal, in Frobenius norm.
"""

from tacit.learners.model_protected.estimators import Decomposed, GroupSparse, LowRank
from tacit.learners.model_protected.framework import ModelProtected
from tacit.learners.model_protected.solved_at_home import solved_at_home
from tacit.learners.model_protected.tasks_and_curator import Curator, Rules, Tasks

__all__ = [
    "Curator",
    "Decomposed",
    "GroupSparse",
    "LowRank",
    "ModelProtected",
    "Rules",
    "Tasks",
    "solved_at_home",
]
