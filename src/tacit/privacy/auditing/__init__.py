"""Audits: lower bounds on ε and μ that refute false claims, on any callable.

``audit`` draws a statistic under two neighbours and bounds what it reveals from below;
``audit_one_run`` does so from many canaries in one run, ``audit_exact`` from known densities.
A claim that survives is consistent with what was tried, no more.
"""

from tacit.privacy.auditing.claims import AuditResult, Claim, Histogram
from tacit.privacy.auditing.lower_bounds import (
    Counts,
    epsilon_between,
    lower,
    mu_between,
    one_run_epsilon,
    one_run_p_value,
    upper,
)
from tacit.privacy.auditing.regions import Region, Side, above, below, bound, classifier
from tacit.privacy.auditing.trials import Draw, Progress, audit, audit_exact, audit_one_run

__all__ = [
    "AuditResult",
    "Claim",
    "Counts",
    "Draw",
    "Histogram",
    "Progress",
    "Region",
    "Side",
    "above",
    "audit",
    "audit_exact",
    "audit_one_run",
    "below",
    "bound",
    "classifier",
    "epsilon_between",
    "lower",
    "mu_between",
    "one_run_epsilon",
    "one_run_p_value",
    "upper",
]
