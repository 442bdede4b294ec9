"""tacit beside what a user would pick instead: one command, one table, everything in one run.

    pip install -e '.[neural,federated,peers]'
    pip install --no-deps pfl dill multiprocess prv-accountant
    pip install cython && pip install --no-deps --no-build-isolation mutar
    python benchmarks/peers.py [--write] [CASE ...]

Every party does the same work, with what it reached beside how long it took; one that is not
installed is skipped with a reason. One JSON line a row. Repeats of all parties alternate; a time is
the least of them. ``--write`` puts the table and a picture of time against tasks into
docs/performance.md. Where we lose, the row stays.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from peers_picture import times_by_tasks
from sklearn.linear_model import MultiTaskLasso, RidgeCV

import tacit
from tacit.datasets import Generated, group_sparse_tasks, related_tasks
from tacit.metrics import nmse_per_task

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
PICTURE = PAGE.with_name("pictures") / "performance.svg"
BEGIN, END = "<!-- peers -->\n", "<!-- /peers -->"
REPEATS = 3


@dataclass(frozen=True)
class Party:
    """Who does the work. ``needs`` is a module it cannot do without."""

    who: str
    run: Callable[[], Any]
    needs: str = "numpy"
    share: float = 1.0  # the part of the work it is given, where all of it would take hours


@dataclass(frozen=True)
class Row:
    """What came of it: seconds for all of the work, and what was reached."""

    work: str
    who: str
    seconds: float
    reached: float
    judged: str


def compared(
    work: str, parties: Sequence[Party], judged: str, judge: Callable[[Any], float]
) -> Iterator[Row]:
    """Every party in turn, several times; what it reached is judged outside the clock."""
    there = [party for party in parties if installed(work, party)]
    best, reached = dict.fromkeys((p.who for p in there), math.inf), {}
    for _ in range(REPEATS):
        for party in there:
            start = time.perf_counter()
            result = party.run()
            best[party.who] = min(best[party.who], (time.perf_counter() - start) / party.share)
            reached[party.who] = judge(result)
    for who, seconds in best.items():
        yield Row(work, who, seconds, reached[who], judged)


def installed(work: str, party: Party) -> bool:
    """Whether it can be run here; said if not."""
    try:
        import_module(party.needs)
    except ImportError as missing:
        print(json.dumps({"work": work, "who": party.who, "skipped": str(missing)}), flush=True)
        return False
    return True


# --- linear tasks --------------------------------------------------------------------------------


def ridge_loop(data: Generated, tasks: int) -> np.ndarray:
    """A RidgeCV for each of the first tasks; what they predict for the test rows."""
    predicted = np.full(len(data.y_test), np.nan)
    for k in range(tasks):
        rows, new = data.task == k, data.task_test == k
        model = RidgeCV(np.geomspace(1e-3, 1e3, 13)).fit(data.X[rows], data.y[rows])
        predicted[new] = model.predict(data.X_test[new])
    return predicted


def error_on(data: Generated) -> Callable[[np.ndarray], float]:
    """nMSE a task over the test rows that were predicted."""

    def error(predicted: np.ndarray) -> float:
        told = np.isfinite(predicted)
        return float(nmse_per_task(data.y_test[told], predicted[told], data.task_test[told]))

    return error


def fitted(learner: Any, data: Generated) -> np.ndarray:
    """What a learner of ours predicts for the test rows."""
    learner.fit(data.X, data.y, task=data.task)
    return np.asarray(learner.predict(data.X_test, task=data.task_test))


def many_ridges(tasks: int = 5_000, loop: int = 500) -> Iterator[Row]:
    """Small ridge problems, each with its penalty chosen by leave-one-out."""
    data = related_tasks(tasks, 30, 30, test_rows=10, rng=np.random.default_rng(0))
    parties = [
        Party("tacit SingleTask", lambda: fitted(tacit.SingleTask(), data)),
        Party("RidgeCV loop", lambda: ridge_loop(data, loop), share=loop / tasks),
        Party("tacit SharedPrior", lambda: fitted(tacit.SharedPrior(), data)),
    ]
    yield from compared(f"{tasks:,} ridges of 30 × 30", parties, "nMSE", error_on(data))


def mixed_model(tasks: int = 200) -> Iterator[Row]:
    """One Gaussian over all models, no privacy: REML with random intercept and slopes."""
    data = related_tasks(tasks, 15, 4, spread=0.7, test_rows=30, rng=np.random.default_rng(0))

    def mixed() -> np.ndarray:
        from statsmodels.regression.mixed_linear_model import MixedLM

        X, new = (np.column_stack([np.ones(len(Z)), Z]) for Z in (data.X, data.X_test))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its own: a covariance on the boundary
            model = MixedLM(data.y, X, groups=data.task, exog_re=X).fit()
        own = np.stack([np.asarray(model.random_effects[k]) for k in range(tasks)])
        return np.asarray(new @ model.fe_params + (new * own[data.task_test]).sum(1))

    parties = [
        Party("tacit SharedPrior", lambda: fitted(tacit.SharedPrior(), data)),
        Party("statsmodels MixedLM", mixed, "statsmodels"),
    ]
    yield from compared(f"random slopes, {tasks} tasks of 15 × 4", parties, "nMSE", error_on(data))


def group_lasso(tasks: int = 50) -> Iterator[Row]:
    """Rows of coefficients chosen together; one X for all tasks, which is what most peers can do,
    and then an X for each."""
    rng = np.random.default_rng(0)
    W = group_sparse_tasks(tasks, 1, 100, rng=rng).coef  # (d, m)
    for shared in (True, False):
        X = rng.normal(size=(1 if shared else tasks, 200, 100)) + np.zeros((tasks, 1, 1))
        y = np.einsum("tnd,dt->tn", X, W) + 0.1 * rng.normal(size=(tasks, 200))
        kind = "one X of 200 × 100" if shared else "200 × 100 each"
        yield from _group_lasso(f"group lasso, {tasks} tasks, {kind}", X, y, shared)


def _group_lasso(work: str, X: np.ndarray, y: np.ndarray, shared: bool) -> Iterator[Row]:
    rows = X.shape[1]
    level = 0.1 * float(np.linalg.norm(np.einsum("tnd,tn->dt", X, y), axis=1).max()) / rows

    def sklearn_lasso() -> np.ndarray:
        model = MultiTaskLasso(level, fit_intercept=False, tol=1e-8)
        return np.asarray(model.fit(X[0], y.T).coef_.T)

    def skglm_lasso() -> np.ndarray:
        from skglm import MultiTaskLasso as Theirs

        return np.asarray(Theirs(level, fit_intercept=False, tol=1e-6).fit(X[0], y.T).coef_.T)

    def mutar_lasso() -> np.ndarray:
        from mutar import GroupLasso

        return np.asarray(GroupLasso(level, fit_intercept=False, tol=1e-8).fit(X, y).coef_)

    def objective(W: np.ndarray) -> float:
        error = np.einsum("tnd,dt->tn", X, W) - y
        return float(0.5 * (error**2).sum() / rows + level * np.linalg.norm(W, axis=1).sum())

    parties = [Party("tacit, ℓ2,1 optimum", lambda: our_group_lasso(X, y, level * rows))]
    if shared:
        parties.append(Party("sklearn MultiTaskLasso", sklearn_lasso))
        parties.append(Party("skglm MultiTaskLasso", skglm_lasso, "skglm"))
    parties.append(Party("mutar GroupLasso", mutar_lasso, "mutar"))
    yield from compared(work, parties, "objective", objective)


def our_group_lasso(X: np.ndarray, y: np.ndarray, level: float) -> np.ndarray:
    """(d, m), of X (m, n, d) and y (m, n)."""
    from tacit.linear.batched import Problems
    from tacit.linear.losses import Squared
    from tacit.linear.penalties import GroupNorm
    from tacit.linear.proximal import optimum
    from tacit.linear.smooth import smooth_part

    m, n, d = X.shape
    rows = np.hstack([X.reshape(m * n, d), np.zeros((m * n, 1))])
    smooth = smooth_part(Problems(rows, y.ravel(), np.arange(m + 1) * n), Squared())
    zero = np.zeros((m, d + 1))  # no intercept: its column is zero
    return np.asarray(optimum(smooth, GroupNorm(), level, start=zero)[:, :-1].T)


# --- networks ------------------------------------------------------------------------------------


def federated_round(clients: int = 40) -> Iterator[Row]:
    """One round: 20 steps of 32 rows of an MLP 784-200-62 at every client, on the CPU."""
    if not installed("a round of MLPs", Party("tacit", lambda: None, "torch")):
        return
    from federated_rounds import round_of

    work = f"a round of {clients} MLPs"
    one = round_of("mlp", clients)
    parties = [Party("tacit, batched", one.ours), Party("a loop over clients", one.loop)]
    yield from compared(work, parties, "way", lambda W: float((W - one.start).norm()))
    for who, its_seconds, needs in (
        ("pfl", one.pfl, "pfl"),
        ("Flower's simulation", one.flower, "flwr.simulation"),
    ):
        if installed(work, Party(who, its_seconds, needs)):
            yield Row(work, who, its_seconds(), math.nan, "its own order of rows")


def clipped_rows() -> Iterator[Row]:
    """One step of DP-SGD in 30 silos: every row's gradient clipped, and their sum, no noise."""
    needs = "tacit.neural.silos.row_gradients"
    if not installed("clipped gradients of rows", Party("tacit", lambda: None, needs)):
        return
    from row_gradients import Silos, opacus, ours

    silos = Silos.drawn()
    parties = [Party("tacit, all silos at once", ours(silos))]
    if installed("clipped gradients of rows", Party("Opacus", lambda: None, "opacus")):
        parties.append(Party("Opacus, a loop over silos", opacus(silos)))
    work = f"clipped gradients of {len(silos.X):,} rows, {len(silos.modules)} MLPs"
    yield from compared(work, parties, "size of the sum", lambda found: float(found.norm()))


# --- privacy -------------------------------------------------------------------------------------


def secure_noise(values: int = 200_000) -> Iterator[Row]:
    """Gaussian noise that survives floating-point attacks, drawn for a vector."""
    from secure_noise import opendp_gaussian

    from tacit.privacy.noise import SecureSource, rounded_gaussian

    few = values // 10
    parties = [
        Party("tacit", lambda: rounded_gaussian(values, SecureSource())),
        Party("OpenDP", lambda: opendp_gaussian(few)(), "opendp", few / values),
    ]
    work = f"{values:,} secure Gaussians"
    yield from compared(work, parties, "values", lambda drawn: float(len(drawn)))


def calibration() -> Iterator[Row]:
    """The noise for 100 Poisson rounds of rate 0.1 at (1, 1e-5)."""
    from tacit.privacy import calibration as ours
    from tacit.privacy.budget import Budget
    from tacit.privacy.composition import loss_distribution, run_epsilon

    def fresh() -> float:
        for cached in (run_epsilon, loss_distribution, ours.poisson_noise_multiplier):
            cached.cache_clear()
        budget = Budget(1.0, 1e-5, neighbours="zero-out")
        return float(ours.poisson_noise_multiplier(0.1, 100, budget))

    def theirs() -> float:
        import dp_accounting as dpa
        from dp_accounting.pld import PLDAccountant

        def event(z: float) -> Any:
            return dpa.SelfComposedDpEvent(
                dpa.PoissonSampledDpEvent(0.1, dpa.GaussianDpEvent(z)), 100
            )

        return float(dpa.calibrate_dp_mechanism(PLDAccountant, event, 1.0, 1e-5, tol=1e-3))

    parties = [Party("tacit", fresh), Party("dp-accounting, PLD", theirs, "dp_accounting")]
    yield from compared("calibrating 100 Poisson rounds", parties, "noise multiplier", float)


CASES: dict[str, Callable[[], Iterator[Row]]] = {
    "ridges": many_ridges,
    "mixed": mixed_model,
    "group-lasso": group_lasso,
    "round": federated_round,
    "rows": clipped_rows,
    "noise": secure_noise,
    "calibration": calibration,
}


# --- the page ------------------------------------------------------------------------------------


def table(rows: Sequence[Row]) -> str:
    """As Markdown; the first party of each work is ours, and ratios are against it."""
    first: dict[str, float] = {}
    lines = ["| work | who | seconds | × ours | reached |", "|---|---|---|---|---|"]
    for row in rows:
        ours = first.setdefault(row.work, row.seconds)
        ratio = f"{row.seconds / ours:.1f}"
        reached = f"{row.reached:.4g} ({row.judged})"
        lines.append(f"| {row.work} | {row.who} | {row.seconds:.3g} | {ratio} | {reached} |")
    return "\n".join(lines) + "\n"


def write(rows: Sequence[Row]) -> None:
    """Into docs/performance.md, between two comments, with date and versions."""
    made = (
        f"{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, {os.cpu_count()} cores"
    )
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}{table(rows)}\n{made}\n{END}{after}", encoding="utf-8")
    PICTURE.write_text(times_by_tasks(), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], metavar="CASE")
    parser.add_argument("--write", action="store_true", help="into docs/performance.md")
    asked = parser.parse_args()
    rows = []
    for name in asked.cases or CASES:
        for row in CASES[name]():
            print(json.dumps(asdict(row)), flush=True)
            rows.append(row)
    if asked.write:
        write(rows)


if __name__ == "__main__":
    main()
