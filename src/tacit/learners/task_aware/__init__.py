"""Local privacy for a linear task (S4).

Jiangnan Cheng, Ao Tang, Sandeep Chinchali, "Task-aware Privacy Preservation for Multi-dimensional
Data", ICML 2022 (arXiv 2110.02329).

**Symbols.** x, n → a row of X; K → ``target``; μ_x → ``mean``; L, h, P → ``Spectrum``; λ_i →
``eigenvalues``; σ_i² → ``squares`` (``water_filling``); E → ``Design.matrix``; D → ``decoder``;
σ_w² → ``mechanism.variance``; Δ₁g_e → ``sensitivity``; r → ``radius``; Z → ``dimensions``.

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

from tacit.learners.task_aware.estimator import TaskAwareEncoder

__all__ = ["TaskAwareEncoder"]
