"""What may leave the trusted side, and the certificate that goes with it.

``save()`` writes everything, for the trusted side. ``export`` writes what one task may have,
``save(public=True)`` what anybody may: releases and declared constants, and nothing that is not
proven unless somebody takes that upon himself (``unproven=True``).
"""

from __future__ import annotations

from typing import Any

from sklearn.utils.validation import check_is_fitted

from tacit.certificate import CertifiedRun, issued, require_proven
from tacit.certificate.since import Since, as_of_now
from tacit.engine import Message, Unprotected
from tacit.errors import UntrustedMessage
from tacit.estimator.families import Accounted
from tacit.json_converter import from_json
from tacit.privacy.budget import Guarantee
from tacit.privacy.ledger import Ledger
from tacit.privacy.signing import SigningKey, signer_for


class Certified(Accounted):
    """A fitted estimator with a guarantee that others may check."""

    guarantee_: Guarantee
    shared_: Message
    ledger_: Ledger | None
    _certificate: dict[str, Any] | None = None  # of this fit, once it is made

    def _subject(self) -> CertifiedRun:
        """What its certificate is about."""
        raise NotImplementedError

    def certify(self, signing_key: SigningKey | None = None, **declared: Any) -> dict[str, Any]:
        """The certificate: made, signed and recorded on the ledger once, and then the same.

        ``signing_key`` is a file; by default the one that TACIT_SIGNING_KEY names, else the one
        beside a ledger that is a file. With neither nobody signs. ``declared`` goes in as it is.
        """
        check_is_fitted(self, "shared_")
        if self._certificate is None:
            signer = self._signer(signing_key)
            self._certificate = issued(self._subject(), signer, **declared)
            told = self._certificate["guarantee"]  # others may have spent since the fit
            self.guarantee_ = from_json(Guarantee, told, "guarantee")
        return self._certificate

    def certificate(self) -> dict[str, Any]:
        """The guarantee in full, with the releases it rests on; see ``certify``."""
        return self.certify()

    def __getstate__(self) -> dict[str, Any]:
        """With the certificate, where the ledger that it rests on stays behind."""
        used = self.__dict__.get("ledger_")
        if used is not None and used.path is None:
            self.certify()
        kept: dict[str, Any] = super().__getstate__()
        return kept

    def _signer(self, signing_key: SigningKey | None) -> Any:
        return signer_for(None if self.ledger_ is None else self.ledger_.path, signing_key)

    def _require_leaving(self, unproven: bool, since: Since | None) -> None:
        """What leaves the trusted side went through the door, or was declared, and is proven, with
        all that was recorded since."""
        for name, part in self.shared_.items():
            if isinstance(part, Unprotected):
                raise UntrustedMessage(
                    f"shared_[{name!r}] was computed without a budget and may not leave; "
                    "fit with a budget, or save() for the trusted side"
                )
        if "format" not in self.certificate():
            raise UntrustedMessage(
                "its certificate is of an older format that nobody can verify; fit again"
            )
        require_proven(as_of_now(self.guarantee_, since), unproven)
