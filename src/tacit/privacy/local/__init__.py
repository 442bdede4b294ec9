"""What every encoder needs that people report through: a mechanism, a ledger, a device's file."""

from tacit.privacy.local import domains
from tacit.privacy.local.device import Layer, export_encoder
from tacit.privacy.local.reports import (
    MECHANISMS,
    LocalName,
    available,
    guarantee,
    local_mechanism,
    reported,
)

__all__ = [
    "MECHANISMS",
    "Layer",
    "LocalName",
    "available",
    "domains",
    "export_encoder",
    "guarantee",
    "local_mechanism",
    "reported",
]
