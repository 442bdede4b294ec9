"""Certificates that somebody who does not trust the sender can check.

``documents``   the signed files: bytes, digests, signatures
``accounts``    the public steps behind an ε, and their sum
``issuing``     making a certificate, and what may leave with it
``checks``      checking a folder from what is in it
``contents``    and what lies beside its certificate
``since``       what was recorded for its tasks after it was made
"""

from tacit.certificate.checks import CANNOT, Finding, checked
from tacit.certificate.documents import digest, seal, signed_by
from tacit.certificate.issuing import CertifiedRun, issued, require_proven, write_folder

__all__ = [
    "CANNOT",
    "CertifiedRun",
    "Finding",
    "checked",
    "digest",
    "issued",
    "require_proven",
    "seal",
    "signed_by",
    "write_folder",
]
