"""The Flower app of a site, as a project that ``tacit federate init`` writes imports it: it passes
requests on to the site's resident."""

from __future__ import annotations

from pathlib import Path

from tacit.federation.flower_site import client_app
from tacit.federation.resident import ask


def passed_on(place: Path, request: bytes) -> bytes:
    """What the site's resident answers."""
    return ask(place, "tacit.cli.federated_site", request)


client = client_app(passed_on)
