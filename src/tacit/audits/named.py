"""Everything that can be audited by name."""

from __future__ import annotations

from tacit.audits.asynchronous import asynchronous_audits
from tacit.audits.cases import Audit
from tacit.audits.cohort_sums import cohort_sum_audits
from tacit.audits.door import door_audits
from tacit.audits.linear_learners import learner_audits
from tacit.audits.local_encoders import local_encoder_audits
from tacit.audits.published_flaws import published_flaws
from tacit.audits.raised_caps import raised_cap_audits
from tacit.audits.silo_runs import silo_audits
from tacit.audits.single_releases import mechanism_audits
from tacit.audits.task_isolation import task_isolation_audits


def every_audit() -> tuple[Audit, ...]:
    """Mechanisms, the ledger, learners, and the hall.

    >>> [audit.name for audit in every_audit()][:3]
    ['GaussianSum', 'VoteSum', 'SymmetricGaussian']
    """
    return (
        *mechanism_audits(),
        *door_audits(),
        *raised_cap_audits(),
        *learner_audits(),
        *task_isolation_audits(),
        *asynchronous_audits(),
        *silo_audits(),
        *cohort_sum_audits(),
        *local_encoder_audits(),
        *published_flaws(),
    )
