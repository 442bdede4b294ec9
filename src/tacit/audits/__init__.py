"""The named audits: every mechanism, every learner, and the hall of the refuted (A to G).

A published analysis that fails is audited twice: as published, where refutation is expected, and as
we repaired it, where the same adversary must find nothing beyond the claim.
"""
