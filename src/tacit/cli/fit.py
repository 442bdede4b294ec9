"""``tacit fit``: from a table to a private model, its certificate and its pages."""

from __future__ import annotations

from tacit.cli.fit_request import FitRequest
from tacit.cli.options import grouped
from tacit.cli.output import AsJson, examples

EXAMPLES = examples(
    "tacit ranges pupils.csv --task school --target score --out ranges.toml",
    "tacit fit pupils.csv --task school --target score --epsilon 1 --ranges ranges.toml"
    " --cap 5 --out model",
    "tacit fit pupils.csv --task school --target score --epsilon 2 --ranges ranges.toml"
    " --attest 'ages are from the register. B. Lee' --learner low-rank --out second",
    "tacit fit pupils.csv --task school --target score --epsilon 1 --range age=4:19"
    " --range score=0:70 --categories sex=f,m --out third",
)


@grouped
def fit(request: FitRequest, as_json: AsJson = False) -> None:
    """Learn one model per task from a table, under a privacy budget.

    Writes model.safetensors, certificate.json, report.html (may be shown to anyone), and for the
    trusted side alone report.local.html, local.json and run.json. What was spent is recorded beside
    the table, in TABLE.ledger.sqlite.
    """
    from tacit.cli.fit_run import run_fit

    run_fit(request, as_json=as_json)
