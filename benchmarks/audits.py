"""What every audit finds, and how long it takes; and the pictures of docs/audits.md.

    python benchmarks/audits.py [--only A] [--seed 0] [--pictures docs/audits]

One JSON line per case. Pictures are drawn for the published forms only.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from bars import bar_chart

from tacit.audits.cases import Audit, Settings
from tacit.audits.named import every_audit
from tacit.privacy.auditing import AuditResult
from tacit.report.audit_page import histogram_picture

TITLES = {
    "A": "λ_min of the release less the covariance with the task: never below 0 with it",
    "A-gram": "the same for WᵀW, 10 tasks: one of them turned round",
    "C": "log density ratio of the inverted noise: the two models never overlap",
    "D": "S3's last message after 50 rounds; every message was claimed to hide it",
    "E": "S2's release when the target took part, with and without its update",
    "isolation": "the sum of 200 directions; one of the tasks has a fifth row",
    "G": "the lowest bit of 0 + noise and of 1 + noise, in (0, ¼); 1 elsewhere",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="the name of one audit")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pictures", type=Path, help="a directory for SVG files")
    asked = parser.parse_args()
    for audit in every_audit():
        if asked.only in (None, audit.name):
            results = measured(audit, asked.seed)
            if asked.pictures is not None and audit.name in (*TITLES, "F"):
                asked.pictures.mkdir(parents=True, exist_ok=True)
                file = asked.pictures / f"{audit.name}.svg"
                file.write_text(picture(audit, results) + "\n", encoding="utf-8")


def measured(audit: Audit, seed: int) -> list[AuditResult]:
    """Audits each case and prints a line about it."""
    results = []
    for case in audit.cases:
        start = time.perf_counter()
        result = case.audit(Settings(seed=seed))
        line = {
            "case": case.name,
            "claimed": result.claim.epsilon,
            "delta": result.claim.delta,
            "epsilon_low": round(result.epsilon_low, 4),
            "mu_low": result.mu_low,
            "confidence": result.confidence,
            "refuted": result.refuted,
            "as_expected": case.as_expected(result),
            "draws": sum(counts.trials for counts in result.counts),
            "seconds": round(time.perf_counter() - start, 2),
        }
        print(json.dumps(line, ensure_ascii=False), flush=True)
        results.append(result)
    return results


def picture(audit: Audit, results: list[AuditResult]) -> str:
    """The statistic of the first published form; where there are no draws, the factors."""
    first = results[0]
    if first.histogram is None:
        bars = [(result.name.removeprefix("F, "), result.epsilon_low) for result in results]
        return bar_chart("Exact ε of the next user, where ε = 1 is claimed", bars)
    return histogram_picture(TITLES[audit.name], first.histogram, first.statistic)


if __name__ == "__main__":
    main()
