"""What a task makes of the shared prior at home, free of charge: a mixture of posterior means.

The options are the task by itself, and every shared prior, each at every scale; their weights are
marginal likelihoods times what all tasks together voted for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from tacit.arrays import BoolArray, FloatArray
from tacit.learners.shared_prior.gaussian_tasks import Alone, Likelihoods, View, likelihoods
from tacit.linear.losses import Loss
from tacit.linear.model_averaging import shares
from tacit.linear.problems import Problems
from tacit.linear.row_algebra import log_sum_exp, row_sums, times_each

SCALES = 10.0 ** np.arange(-3, 3.01, 0.5)
"""c of every prior, around the voted one."""

VOTED = SCALES[::2]
"""Those that are voted on."""

WIDER_ABOVE = 6.0  # nats: spread of log c above one, where a task may differ from the others freely
ALONE_BELOW = 3.0  # and below one of a task by itself
UNLIKELY = (
    4.0  # nats by which all tasks together find a prior worse than the best: not worth trying
)


@dataclass(frozen=True)
class Priors:
    """Everything that was shared, as a task uses it: N(mean_a, s²c F_a F_aᵀ), a = 1 … A."""

    means: FloatArray  # (A, D)
    factors: FloatArray  # (A, D, D)
    noise: float  # s
    noise_spreads: FloatArray  # (S,), nats: how much tasks may differ in their noise
    scale_spread: float  # nats: how far below the voted scale a task's own may lie
    handicap: FloatArray  # (1 + A,), log prior of the options: by itself, and the priors
    vote: FloatArray  # (S, 1 + A, L), log prior of everything

    @classmethod
    def of(cls, values: Mapping[str, FloatArray]) -> Priors:
        """Read from what is shared."""
        found = {name: np.asarray(values[name]) for name in cls.__dataclass_fields__}
        return cls(**{k: float(v) if v.ndim == 0 else v for k, v in found.items()})  # type: ignore[arg-type]  # numbers and arrays by their dimension

    def likelihoods(self, problems: Problems, loss: Loss) -> Likelihoods:
        """Of each task; a logistic one's first at its mode under the first prior."""
        covariance = self.noise**2 * self.factors[0] @ self.factors[0].T
        return likelihoods(problems, loss, self.means[0], covariance)

    def views(self, tasks: Likelihoods) -> Iterator[Alone | View]:
        """The tasks under every option, one at a time: each is as large as their rows."""
        yield Alone.of(tasks)
        for mean, F in zip(self.means, self.factors, strict=True):
            yield View.of(tasks, mean, F)

    def evidence(self, views: Iterable[Alone | View], scales: FloatArray) -> FloatArray:
        """Log posterior of every option (m, S, 1 + A, L) before the vote."""
        found = [view.evidence(scales, self.noise, self.noise_spreads)[0] for view in views]
        return np.stack(found, axis=2) + self._usual(scales)

    def _usual(self, scales: FloatArray) -> FloatArray:
        """(1 + A, L): the public prior of scales, and the handicap."""
        below = np.where(np.arange(len(self.handicap)) == 0, ALONE_BELOW, self.scale_spread)
        nats = np.log(scales) / np.where(scales > 1, WIDER_ABOVE, below[:, None])
        return np.asarray(self.handicap[:, None] - 0.5 * nats**2)

    def models(self, tasks: Likelihoods) -> FloatArray:
        """(m, D): the mixture of all options; the shared mean where its numbers overflow."""
        views = list(self.views(tasks))
        evidence = self.evidence(views, SCALES)
        weight = shares(log_sum_exp(evidence + self.vote))
        mixed = sum(view.mixed(SCALES, weight[:, i]) for i, view in enumerate(views))
        sound: BoolArray = np.isfinite(mixed).all(axis=1)  # type: ignore[assignment] # no scalar
        return np.where(sound[:, None], mixed, self.means[0])

    def spreads(self, tasks: Likelihoods) -> FloatArray:
        """(m, d): posterior standard deviations of the slopes; zero where numbers overflow.

        Their square is what each option leaves open, at the noise that is likeliest under it, and
        how far the options lie apart."""
        views = list(self.views(tasks))
        evidence = self.evidence(views, SCALES)
        weight = shares(evidence + self.vote)  # (m, S, 1 + A, L)
        centre = self.models(tasks)[:, None, :-1]
        total = np.zeros_like(centre[:, 0])
        for i, view in enumerate(views):
            _, noises = view.evidence(SCALES, self.noise, self.noise_spreads)
            means, variances = (part[..., : centre.shape[-1]] for part in view.each(SCALES))
            own = weight[:, :, i]
            total += times_each((own * noises).sum(axis=1), variances)
            total += times_each(own.sum(axis=1), (means - centre) ** 2)
        sound = np.asarray(np.isfinite(total).all(axis=1))
        return np.where(sound[:, None], np.sqrt(total), 0.0)

    def worth_trying(self) -> Priors:
        """Without those that the vote finds unlikely at every scale. The task by itself stays, and
        the first prior, around the mean: it serves newcomers and logistic modes."""
        best = self.vote.max(axis=(0, 2))
        kept = best >= best.max() - UNLIKELY
        kept[:2] = True
        shared = kept[1:]
        return replace(
            self,
            means=self.means[shared],
            factors=self.factors[shared],
            handicap=self.handicap[kept],
            vote=self.vote[:, kept],
        )

    def at_home(self, problems: Problems, loss: Loss) -> FloatArray:
        """(m, D), in the units of ``problems``; a logistic task's likelihood is approximated once
        more where its first mixture lies. That counts where it serves the task: far out, where rows
        hardly curve the likelihood, such a step may go anywhere."""
        models = self.models(self.likelihoods(problems, loss))
        if loss.quadratic:
            return models
        again = self.models(Likelihoods.logistic(problems, loss, models))
        served = self._objective(problems, loss, again) <= self._objective(problems, loss, models)
        return np.where(served[:, None], again, models)

    def _objective(self, problems: Problems, loss: Loss, models: FloatArray) -> FloatArray:
        """(m,): −log posterior under the first prior, but for a constant."""
        with np.errstate(over="ignore", invalid="ignore"):
            eta = row_sums(problems.X * models[problems.task])
            u = times_each(models - self.means[0], np.linalg.pinv(self.noise * self.factors[0]).T)
            return problems.sum_rows(loss.value(eta, problems.y)) + 0.5 * row_sums(u**2)

    def spreads_at_home(self, problems: Problems, loss: Loss) -> FloatArray:
        """(m, d), in the units of ``problems``; of squared loss, whose likelihood is exact."""
        return self.spreads(self.likelihoods(problems, loss))
