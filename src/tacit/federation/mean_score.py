"""One noisy mean of all tasks' scores, where the terms planned a part of the budget for it.

A task's score is a number in [0, 1] that its site measures at home on rows that it kept: the share
of classes that are right, or of the spread that is explained. It contributes score − ½, clipped to
½, so a task that says nothing counts as ½ and Δ is 1 under replace, ½ under zero-out. With μ of the
whole budget the mean has ``scores`` of μ², and the learner plans with the rest: under Gaussian DP
squares add, so both together are the budget, which is the cap of the coordinator's ledger.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from tacit import folder
from tacit.arrays import FloatArray
from tacit.engine import CURATOR
from tacit.errors import InvalidInput
from tacit.federation.scores import HALF
from tacit.federation.sites import ROOM, Sites
from tacit.federation.wire import packed, require_rows
from tacit.privacy.gaussian import gaussian_epsilon
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms import GaussianSum
from tacit.privacy.planning import open_door

SCORES = "scores.json"


def release_mean(sites: Sites, ledger: Ledger, place: Path) -> None:
    """Asks every site for its tasks' scores, and writes their noisy mean; once for a run."""
    terms, m = sites.terms, len(sites.terms.labels)
    mu = terms.mu_of_scores
    budget = replace(terms.budget, epsilon=gaussian_epsilon(terms.budget.delta, mu))
    rng = None if terms.noise == "secure" else np.random.default_rng(terms.seed)
    door = open_door(ledger, f"{terms.run}, scores", terms.labels, budget, rng, pure=False)
    mechanism = GaussianSum.for_mu(HALF, mu, terms.budget.neighbours)
    door.open([mechanism])
    found = door.released(0, CURATOR, mechanism)
    if found is None:
        found = door.release(0, CURATOR, mechanism, _asked(sites))
    mean = HALF + float(np.asarray(found.value)[0]) / m
    error = mechanism.sigma / m
    folder.write_json(place / SCORES, {"mean": mean, "deviation_of_noise": error, "tasks": m})
    sites.note("scores", mean=mean)


def _asked(sites: Sites) -> FloatArray:
    """(m, 1): what sites say, in their places; the first sound answer of each counts."""
    rows, heard = np.zeros((len(sites.terms.labels), 1)), set()
    request = packed({"kind": "score", "terms": sites.terms.digest})
    for name, _, arrays in sites.sound_answers(dict.fromkeys(sites.address, request), ROOM):
        own = sites.terms.places[name]
        try:
            found = require_rows(arrays, (len(own), 1))
        except InvalidInput as error:
            sites.note("refused", site=name, why=str(error))
            continue
        if name not in heard:
            rows[own] = found
            heard.add(name)
    return rows
