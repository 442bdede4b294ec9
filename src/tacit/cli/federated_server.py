"""The Flower app of a coordinator, as a project that ``tacit federate init`` writes imports it."""

from __future__ import annotations

from pathlib import Path

from tacit.certificate.documents import seal_again
from tacit.federation.flower import server_app
from tacit.privacy.signing import Signer


def public_page(place: Path, signer: Signer) -> None:
    """What may be shown to anyone, under the seal."""
    from tacit.report.pages import write_pages

    write_pages(place)
    seal_again(place, signer)


server = server_app(public_page)
