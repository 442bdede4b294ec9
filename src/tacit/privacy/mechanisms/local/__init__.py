"""Local mechanisms: nobody is trusted, each user's row becomes a report of its own (S4).

==================  =============================  ======================  ======
mechanism           variance of a coordinate       reveals                 secure
==================  =============================  ======================  ======
``LocalLaplace``    8r²‖σ‖²/(ε²σ_i²)               Pure(ε)                 yes
``LocalKNorm``      4r²(Z + 1)/ε²                  Pure(ε)                 no
``PrivUnitG``       r²/s(ε)², in any dimension     Pure(ε)                 yes
``LocalGaussian``   4r²/μ²                         Gaussian(μ)             yes
``LocalStaircase``  ≈ 2.5r² e^−2ε/3, one number    Pure(ε)                 yes
``SampledLaplace``  2Δ̂²/ε², Δ̂ of the samples       Pure(ε), a claim        no
==================  =============================  ======================  ======

All but the last clip rows in ℓ2 to a declared radius r where the noise is added, so the guarantee
is the next user's and not the sample's (docs/privacy.md, F). Reports are unbiased for the clipped
row, and their variance does not depend on it. ``rng=None`` asks the operating system.

The release of all rows has the event of one: a user changes only the own row.
"""

from typing import Any

from tacit.json_converter import from_json
from tacit.privacy.mechanisms.local.additive import (
    LocalGaussian,
    LocalKNorm,
    LocalLaplace,
    SampledLaplace,
)
from tacit.privacy.mechanisms.local.mechanism import LocalMechanism
from tacit.privacy.mechanisms.local.privunit import PrivUnitG, best_threshold, expected_lean
from tacit.privacy.mechanisms.local.sample_sensitivity import sample_sensitivity
from tacit.privacy.mechanisms.local.staircase import LocalStaircase


def mechanism_from_dict(written: dict[str, Any]) -> LocalMechanism:
    """The mechanism that ``to_dict`` wrote.

    >>> mechanism_from_dict(PrivUnitG(1.0, 2.0).to_dict())
    PrivUnitG(radius=1.0, epsilon=2.0)
    """
    kinds: tuple[type[LocalMechanism], ...] = (
        LocalLaplace,
        LocalKNorm,
        LocalGaussian,
        LocalStaircase,
        PrivUnitG,
        SampledLaplace,
    )
    fields = dict(written)
    kind = {kind.__name__: kind for kind in kinds}[fields.pop("name")]
    return from_json(kind, fields, kind.__name__)


__all__ = [
    "LocalGaussian",
    "LocalKNorm",
    "LocalLaplace",
    "LocalMechanism",
    "LocalStaircase",
    "PrivUnitG",
    "SampledLaplace",
    "best_threshold",
    "expected_lean",
    "mechanism_from_dict",
    "sample_sensitivity",
]
