"""Asynchronous multi-task learning with a server that is an adversary: no trust, no waiting.

S3: Xie, Baytas, Lin, Zhou, "Privacy-Preserving Distributed Multi-Task Learning with Asynchronous
Updates", KDD 2017. Equations and lines are cited where they are used.

**Symbols**

=========  =========================  ==========================================================
P, p_t     ``shared``, ``column``     the shared part, (D, T), at the server; one column per node
Q, q_t     ``own``                    the task's own part, (D,), which never leaves its node
V          ``ServerState.V``          the matrix before the prox: P = prox(V)
r, λ       ``shared``, ``level``      penalty of P
g, τ       ``own``, ``own_level``     penalty of Q, column by column
α          ``step``
η          ``relaxation``             how far a column moves towards its new place (steps.py)
S          ``PublishedState.S``       everybody's last gradient, in the published server
z₁, z₂     noises of Algorithm 1      published.py
n_t, T     rows of a node, nodes      ``n_nodes``
=========  =========================  ==========================================================

**Where things are**: formulations.py (§3.1), server.py with columns.py (one column of a prox) and
steps.py (step sizes, and why they converge under delay), admission.py (what the server refuses),
published.py (Eq. 6–9 and Algorithm 1). The engine is tacit.engine.arrivals, with schedules from
tacit.engine.latencies.

**Differs from the paper in**

1. The private node: p and q step from the same noisy gradient at the same point, from a start that
   is a constant; per-example clipping; a total over all messages. The published analysis is not
   sound (docs/privacy.md, D and D′). Gauss–Seidel order, an exact q and the single-task start exist
   without privacy and as published only.
2. The server keeps V, so that an arrival moves one column; S3's server steps from P with
   everybody's last gradient, which moves all of them and costs a full SVD (published.py has it).
3. The step on an arrival is one that provably descends, from what the server can see; S3 cites
   others for convergence and fixes its steps by hand.
4. Nobody's sending times depend on data: schedules are drawn before anything is computed.
"""
