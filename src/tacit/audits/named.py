"""Everything that can be audited by name."""

from __future__ import annotations

from tacit.audits.asynchronous import asynchronous_audits
from tacit.audits.cases import Audit
from tacit.audits.door import door_audits
from tacit.audits.federated import federated_audits
from tacit.audits.hall import hall
from tacit.audits.isolation import isolation_audits
from tacit.audits.learners import learner_audits
from tacit.audits.local_encoders import local_encoder_audits
from tacit.audits.mechanisms import mechanism_audits
from tacit.audits.raised_caps import raised_cap_audits


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
        *isolation_audits(),
        *asynchronous_audits(),
        *federated_audits(),
        *local_encoder_audits(),
        *hall(),
    )
