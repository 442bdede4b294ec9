"""Asynchronous multi-task learning with a server that is an adversary: no trust, no waiting.

S3: Xie, Baytas, Lin, Zhou, "Privacy-Preserving Distributed Multi-Task Learning with Asynchronous
Updates", KDD 2017. Equations and lines are cited where they are used.

**Symbols**

=========  ==========================  =========================================================
P, p_t     ``shared``, ``column``      the shared part, (D, T), at the server; one column per node
Q, q_t     ``own``                     the task's own part, (D,), which never leaves its node
V          ``BeforeProx``              the matrix before the prox: P = prox(V)
r, λ       ``penalty``, ``level``      penalty of P
g, τ       ``own``, ``own_level``      penalty of Q, column by column
α          ``step``
η          ``relaxation``              how far a column moves towards its new place (updates.py)
S          ``Gradients.S``             everybody's last gradient, in the published server
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

1. The private node: p and q step from the same noisy gradient at the same point, from a start that
   is a constant; per-example clipping; a total over all messages. The published analysis is not
   sound (docs/privacy.md, D and D′). Gauss–Seidel order, an exact q and the single-task start exist
   without privacy and as published only.
2. The server keeps V, so that an arrival moves one column; S3's server steps from P with
   everybody's last gradient, which moves all of them and costs a full SVD (``LastGradients``).
3. The step on an arrival is one that provably descends, from what the server can see; S3 cites
   others for convergence and fixes its steps by hand.
4. Nobody's sending times depend on data: schedules are drawn before anything is computed.
"""
