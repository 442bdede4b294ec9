"""Audits of local encoders, end to end: a user's row goes in, the report that comes out is judged.

The two users lie far outside the rows that the encoder was fitted on, in opposite directions and in
the mechanism's worst one: a clip that is forgotten, or made in another place than the noise, shows.
The statistic is the log density ratio of a report, known in closed form for every mechanism here.

As published (docs/privacy.md, F), the same two users are three times as far apart as any two rows
of the sample, and the claimed ε is refuted by the reports themselves.

**Isolation.** A batch was once refused when one of its rows held NaN: that nobody's report came
told what one user's row was. Now that row is reported around zero, and no other report moves.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tacit.arrays import FloatArray
from tacit.audits.cases import Asked, Audit, Case
from tacit.encoders.linear_encoder import TaskAwareEncoder
from tacit.encoders.mechanism_choice import EVERY, LocalName
from tacit.errors import InvalidInput
from tacit.privacy.auditing import AuditResult, Claim, Side
from tacit.privacy.budget import Budget
from tacit.privacy.mechanisms import clip_rows
from tacit.privacy.mechanisms.local import LocalMechanism, SampledLaplace

ROWS, OVERSIZE, FARTHER, BATCH = 300, 10.0, 3.0, 5
REFUSED = -1e6  # the statistic where no report comes
K = np.diag([2.0, 1.0, 0.0])


def public_rows() -> FloatArray:
    """Volunteers: three correlated columns."""
    rng = np.random.default_rng(0)
    mixing = np.array([[1.0, 0.5, 0.2], [0.0, 1.0, 0.3], [0.0, 0.0, 1.0]])
    return np.asarray(rng.standard_normal((ROWS, 3)) @ mixing)


def users(encoder: TaskAwareEncoder) -> tuple[FloatArray, FloatArray]:
    """Two rows of X (n,) whose encodings point in opposite worst directions, far out."""
    design, mechanism = encoder.design_, encoder.mechanism_
    if mechanism is None:
        raise InvalidInput("this encoder reports nothing: there is nothing to audit")
    direction = mechanism.worst_direction(design.size)
    reach = OVERSIZE * mechanism.radius
    if isinstance(mechanism, SampledLaplace):
        reach = FARTHER * mechanism.sensitivity / (2 * float(np.abs(direction).sum()))
    (layer,) = design.encoder
    solve = np.linalg.pinv(layer.weight)
    first, second = (solve @ (sign * reach * direction - layer.bias) for sign in (1, -1))
    return first, second


def report_audit(name: LocalName, asked: Asked, *, secure: bool = False) -> AuditResult:
    """Reports of the two users through ``transform`` itself."""
    budget = Budget(asked.epsilon, asked.delta)
    encoder = _encoder(budget, mechanism=name, noise="secure" if secure else "simulated")
    return _audited(encoder, asked, proven=True, secure=secure)


def published_audit(asked: Asked) -> AuditResult:
    """The sensitivity of the sample, and two users outside it."""
    encoder = _encoder(Budget(asked.epsilon, 0.0), as_published=True, noise="simulated")
    return _audited(encoder, asked, proven=False, secure=False)


def unreadable_audit(asked: Asked, *, refusing: bool = False) -> AuditResult:
    """A batch in which one user's row is far out, or holds NaN; ``refusing``: as it once was."""
    encoder = _encoder(Budget(asked.epsilon, 0.0), mechanism="laplace", noise="simulated")
    far, mechanism = users(encoder)[0], encoder.mechanism_
    assert mechanism is not None
    pair = (far, np.full_like(far, np.nan))
    centres = clip_rows(encoder.design_.encoded(np.stack(pair)), mechanism.radius)

    def draw(side: Side, rng: np.random.Generator, n: int) -> FloatArray:
        encoder._rng = rng
        batch = np.tile(np.vstack([pair[side], public_rows()[1:BATCH]]), (n, 1))
        try:
            _refused(batch, refusing)
            reports = np.asarray(encoder.transform(batch)).reshape(n, BATCH, -1)[:, 0]
        except InvalidInput:
            return np.full(n, REFUSED)
        one, other = (mechanism.log_density(reports, centre) for centre in centres)
        return np.round(one - other, 9)  # low bits are another flaw's evidence (G)

    return asked.audit(
        draw,
        _claim(mechanism, asked, proven=not refusing),
        pair="one user's row, far outside the sample, becomes NaN",
        statistic="whether the batch is reported, and the log density ratio of that user's report",
    )


def _refused(batch: FloatArray, refusing: bool) -> None:
    if refusing and not np.isfinite(batch).all():
        raise InvalidInput("Input X contains NaN.")


def _encoder(budget: Budget, **more: Any) -> TaskAwareEncoder:
    return TaskAwareEncoder(budget, random_state=0, **more).fit(public_rows(), target=K)


def _audited(encoder: TaskAwareEncoder, asked: Asked, *, proven: bool, secure: bool) -> AuditResult:
    pair, mechanism = users(encoder), encoder.mechanism_
    assert mechanism is not None
    encoded = clip_rows(encoder.design_.encoded(np.stack(pair)), mechanism.radius)

    def draw(side: Side, rng: np.random.Generator, n: int) -> FloatArray:
        if not secure:
            encoder._rng = rng
        reports = np.asarray(encoder.transform(np.tile(pair[side], (n, 1))))
        one, other = (mechanism.log_density(reports, row) for row in encoded)
        return np.round(one - other, 9)  # low bits are another flaw's evidence (G)

    return asked.audit(
        draw,
        _claim(mechanism, asked, proven=proven),
        reproducible=not secure,
        pair="two users far outside the sample, in opposite directions",
        statistic="exact log density ratio of the report",
    )


def _claim(mechanism: LocalMechanism, asked: Asked, *, proven: bool) -> Claim:
    return Claim(
        mechanism.event("replace"),
        unit="one user's vector",
        neighbours="any two users",
        adversary="whoever sees the report",
        proven=proven,
        source=f"{type(mechanism).__name__}.event",
        read_at=asked.delta or 1e-5,
    )


def local_encoder_audits() -> tuple[Audit, ...]:
    """Every mechanism through the encoder, and the published encoder."""
    delta: dict[str, float] = {"gaussian": 1e-5}
    cases = [
        Case(f"TaskAwareEncoder, {name}", partial(report_audit, name), delta=delta.get(name, 0.0))
        for name in EVERY
    ]
    cases += [
        Case(
            "TaskAwareEncoder, laplace, secure noise",
            partial(report_audit, "laplace", secure=True),
            samples=10_000,
        ),
        Case("TaskAwareEncoder, as published", published_audit, flawed=True),
    ]
    about = "reports of users far outside the sample, through the encoder itself"
    refusing = partial(unreadable_audit, refusing=True)
    isolation = (
        Case("TaskAwareEncoder, a batch refused for one row", refusing, flawed=True),
        Case("TaskAwareEncoder, a row that cannot be read", unreadable_audit),
    )
    return (
        Audit("TaskAwareEncoder", about, tuple(cases)),
        Audit("TaskAwareEncoder-isolation", "a batch in which one row cannot be read", isolation),
    )
