r"""The two halves of S3's asynchronous learner, and what passes between them.

.. math:: \min_{P,Q} Σ_t (1/n_t) Σ_i ℓ(x_iᵀ(p_t + q_t); y_i) + λ r(P) + τ Σ_t g(q_t)

The server keeps P and is an adversary; node t keeps q_t and its rows. A message is the gradient of
the node's mean loss in p_t, (d,), noisy or not, and answers one column of P. Neither half knows
when it runs or how messages travel: the engine does (tacit.engine.arrivals), or Flower.

The protocols stand with the engine, which drives them; this is where the learner's parts get them.
"""

from __future__ import annotations

from tacit.engine.arrivals import (
    GRADIENT,
    Arrival,
    NodeHalf,
    Outbox,
    Parties,
    Released,
    ServerHalf,
    Unguarded,
)

__all__ = [
    "GRADIENT",
    "Arrival",
    "NodeHalf",
    "Outbox",
    "Parties",
    "Released",
    "ServerHalf",
    "Unguarded",
]
