"""Asynchronous multi-task learning with a server that is an adversary: no trust, no waiting.

S3: Xie, Baytas, Lin, Zhou, "Privacy-Preserving Distributed Multi-Task Learning with Asynchronous
Updates", KDD 2017. Equations and lines are cited where they are used.

**Symbols**

=========  ==========================  =========================================================
w_t        column of ``coef_``         p_t + q_t, released; ``home_coef_`` never leaves
P, p_t     ``shared_["P"]``, columns   the shared part, (D, T), at the server; one column per node
Q, q_t     ``shared_["Q"]``, ``own``   the tasks' own parts, as far as they were released
V          ``BeforeProx``              the matrix before the prox: P = prox(V)
r, λ       ``penalty``, ``level``      penalty of P; λ by a public rule (plan.py)
g, τ       ``own``, ``own_level``      penalty of Q, column by column; τ by a public rule
α          ``step``                    by a public rule
η          ``relaxation``              how far a column moves towards its new place (updates.py)
S          ``Gradients.S``             everybody's last gradient, in the published server
ε₁ + ε₂    of one message              here: the budget is for all messages of a node together
MAX        ``releases``                messages of a node, fixed before it starts
z₁, z₂     noises of Algorithm 1       paper_nodes.py; S3's other letters: printed.py
n_t, T     rows of a node, nodes       ``n_nodes``
=========  ==========================  =========================================================

**Where things are**

- formulations.py: the problems of §3.1
- estimator.py: the learner; plan.py: what is promised, spent and done, from public numbers
- node.py: the sound node
- printed.py: every letter of S3, for ``as_published``; paper_nodes.py: its node; paper_run.py: its
  run, without privacy and as published, and the trajectory
- server.py: what a server takes in and hands out; updates.py: how messages move P, and why that
  converges under delay
- trusted_server.py: the variant of §5; refit.py: what a node does at home

The engine is tacit.engine.arrivals, with schedules from tacit.engine.latencies.

**Differs from the paper in**

1. The private node: p and q step from the *same* noisy gradient at the same point, from zero; S3's
   q is a state that was never privatised (docs/privacy.md, D and D′). Gauss–Seidel order, an exact
   q and the single-task start exist as published only, with noise and without.
2. Each example's gradient is clipped; S3's Theorem 3.6 takes δ over the data, which is no DP.
3. A node's budget is for all its messages, their number fixed before the first; S3 reports one.
4. Examples are weighted by 1/‖x‖², so that steps need no look at X (plan.py).
5. The server averages messages before it thresholds them; without noise it keeps V, so that an
   arrival moves one column by a step that provably descends (updates.py). S3's server steps from P
   with everybody's last gradient, which moves all of them, by steps that are fixed by hand.
6. Afterwards every node refits at home (refit.py), which is free.
7. ``server="trusted"`` is the variant that S3 §5 leaves to future work (trusted_server.py).
8. Nobody's sending times depend on data: schedules are drawn before anything is computed.
"""
