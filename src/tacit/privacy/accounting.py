"""Accounting: events are data, functions turn them into (ε, δ).

================  ==========================================================================
``events``        what one release reveals about one unit
``gaussian``      Gaussian DP, exactly
``composition``   ε at δ of one run whose events are fixed in advance: one loss distribution
``bracket``       our own bounds around it
``costs``         what adds up across runs whose parameters depend on earlier outputs
``dominating``    a whole run as such a cost
``calibration``   how much noise a budget asks for
================  ==========================================================================

This module is the front door: import from here. Numbers are rounded so that privacy is never
overstated: ε upwards, μ downwards.
"""

from tacit.privacy.calibration import (
    geometric_schedule,
    noise_multiplier,
    per_report_epsilon,
    poisson_noise_multiplier,
    power_schedule,
    pure_schedule,
)
from tacit.privacy.composition import (
    epsilon,
    kov_epsilon,
    poisson_epsilon,
    pure_epsilon,
    visible_delta,
    visible_epsilon,
)
from tacit.privacy.costs import Cost, cost, remaining_mu
from tacit.privacy.dominating import dominating
from tacit.privacy.events import Approximate, Event, Gaussian, Poisson, Pure, Visible
from tacit.privacy.gaussian import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
)

__all__ = [
    "Approximate",
    "Cost",
    "Event",
    "Gaussian",
    "Poisson",
    "Pure",
    "Visible",
    "cost",
    "dominating",
    "epsilon",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "geometric_schedule",
    "kov_epsilon",
    "noise_multiplier",
    "per_report_epsilon",
    "poisson_epsilon",
    "poisson_noise_multiplier",
    "power_schedule",
    "pure_epsilon",
    "pure_schedule",
    "remaining_mu",
    "visible_delta",
    "visible_epsilon",
]
