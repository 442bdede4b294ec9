"""What a federated run promises, and why it may not be proven."""

from __future__ import annotations

import warnings
from dataclasses import replace

from tacit.errors import PrivacyWarning
from tacit.neural.inputs import Classes
from tacit.neural.isolation_trial import ASSUMED
from tacit.neural.pmtl import FederatedPlan
from tacit.neural.sampling import Everyone
from tacit.privacy.budget import Guarantee
from tacit.privacy.planning import UNIT, Door, stated

NOT_COVERED = (*UNIT.not_covered, "the parameters that the module came with", *ASSUMED)
OWN_BROADCAST = "the broadcast that a client alone listens to: hand it to nobody but that client"
SEEDED = "coins from a seeded generator: who takes part is no secret"
MEASURED = "classes taken from the data: declare them with classes="


def warn_of_measured(classes: Classes | None) -> None:
    """PrivacyWarning if the classes were taken from the data."""
    if classes is not None and classes.measured:
        warnings.warn(
            f"{MEASURED}. Which classes there are is then told to everybody, and nothing is proven",
            PrivacyWarning,
            stacklevel=3,
        )


def doubts(plan: FederatedPlan, together: str, *, seeded: bool, measured: bool) -> list[str]:
    """Why nothing is proven, if it is not; ``together``: why clients may not be kept apart."""
    found = [together] if together else []
    if seeded and plan.sampler != Everyone():
        found.append(SEEDED)
    if measured:
        found.append(MEASURED)
    return found


def guaranteed(plan: FederatedPlan, door: Door | None) -> Guarantee:
    """What this run, with all others recorded for these clients, reveals about one of them."""
    if door is None:
        return replace(UNIT, reason="budget=None: no privacy at all")
    own = () if plan.mixing.public else (OWN_BROADCAST,)
    return stated(
        replace(UNIT, not_covered=(*NOT_COVERED, *own)),
        door.ledger,
        door.labels,
        [door.run],
        neighbours=door.neighbours,
        accountant=f"{type(plan.sampler).__name__}: all rounds composed as planned (PLD, binomial "
        "mixture or exact Gaussian DP)",
    )
