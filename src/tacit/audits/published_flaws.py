"""The hall of the refuted: every published analysis that fails, and its repair."""

from __future__ import annotations

from tacit.audits.cases import Audit
from tacit.audits.hidden_state import hidden_state_audits
from tacit.audits.low_bits import low_bit_audits
from tacit.audits.measured_bounds import measured_bound_audits
from tacit.audits.output_noise import output_noise_audits
from tacit.audits.participation import participation_audits
from tacit.audits.wishart import wishart_audits


def published_flaws() -> tuple[Audit, ...]:
    """A, A′, C, D, E, F and G."""
    return (
        *wishart_audits(),
        *output_noise_audits(),
        *hidden_state_audits(),
        *participation_audits(),
        *measured_bound_audits(),
        *low_bit_audits(),
    )
