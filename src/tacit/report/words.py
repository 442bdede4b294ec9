"""A guarantee in words that a privacy officer understands, without a number changed or left out."""

from __future__ import annotations

import math

from tacit.certificate.meaning import best_guess, percent
from tacit.privacy.planning import UNIT
from tacit.report.public_view import PublicView, plural
from tacit.rounding import odds, rounded_up

OF_A_TASK = {
    "replace": "whether one {noun}'s data were these or any other data",
    "zero-out": "whether one {noun}'s data took part at all",
}
OF_ANOTHER_UNIT = {
    "replace": "whether {unit} was this or any other",
    "zero-out": "whether {unit} took part at all",
}
UNKNOWN = "which of two neighbouring data sets it was"


def promise(facts: PublicView) -> str:
    """The guarantee in one sentence.

    The factor bounds the odds: P[seen | these data] ≤ e^ε P[seen | other data] + δ.
    """
    guarantee = facts.guarantee
    if math.isinf(guarantee.epsilon):
        return "Nothing is promised: this model was made without a privacy budget."
    factor = f"a factor e^{rounded_up(guarantee.epsilon)} = {_factor(guarantee.epsilon)}"
    sentence = f"{_observers(facts)} tell, beyond {factor}, {_difference(facts)}."
    if guarantee.proven:
        return sentence
    return f"Claimed, not proven: {sentence[0].lower()}{sentence[1:]}"


def _factor(epsilon: float) -> str:
    return (
        f"{math.ceil(math.exp(epsilon) * 100 - 1e-6) / 100:,.2f}"
        if epsilon < 700
        else "more than can be written"
    )


def _observers(facts: PublicView) -> str:
    if facts.guarantee.unit != UNIT.unit:
        return f"Nobody ({facts.guarantee.adversary}) can"
    others = plural(facts.task_noun)
    if facts.n_tasks is None:
        return f"No coalition of the other {others} can"
    if facts.n_tasks == 2:
        return f"The other {facts.task_noun} cannot"
    return f"No coalition of the other {facts.n_tasks - 1:,} {others} can"


def _difference(facts: PublicView) -> str:
    unit, neighbours = facts.guarantee.unit, facts.guarantee.neighbours
    said = OF_A_TASK if unit == UNIT.unit else OF_ANOTHER_UNIT
    return said.get(neighbours, UNKNOWN).format(noun=facts.task_noun, unit=unit)


def in_practice(facts: PublicView) -> str:
    """What the factor means for somebody who guesses."""
    guarantee = facts.guarantee
    most = best_guess(guarantee.epsilon, guarantee.delta)
    return (
        "Put as a bet: an observer who knows everything else, and to whom both are equally likely, "
        f"guesses right {percent(most)} of the time at most (a coin: 50%), whatever they compute "
        "from what was released, now or later."
    )


def delta(facts: PublicView) -> str:
    """δ in words."""
    value = facts.guarantee.delta
    if value == 0:
        return "0: the factor holds always."
    text = f"{rounded_up(value)}: a slack of {odds(value)}, by which the factor may be missed."
    if facts.n_tasks is not None and value * facts.n_tasks > 0.1:
        few = plural(facts.task_noun)
        text += f" It is not small beside one in {facts.n_tasks:,}, the number of {few}."
    return text


def neighbours(facts: PublicView) -> str:
    """What is compared with what."""
    kinds = {
        "replace": "One unit's data become any other data (“replace”).",
        "zero-out": "One unit's contribution becomes nothing (“zero-out”): "
        "half the change of a replacement.",
    }
    return kinds.get(facts.guarantee.neighbours, facts.guarantee.neighbours)


def verdicts(facts: PublicView) -> list[tuple[bool, str]]:
    """(good, sentence): what stands behind the numbers."""
    guarantee = facts.guarantee
    if math.isinf(guarantee.epsilon):
        return [(False, "No privacy budget: treat everything in this folder as private data.")]
    proof = "Proven: every release behind this page is covered by a proof."
    if not guarantee.proven:
        proof = f"Not proven: {guarantee.reason or 'no reason given'}."
    elif guarantee.reason:
        proof = f"Proven, assuming: {guarantee.reason}."
    noise = "Exact noise from the operating system's randomness; its low bits tell nothing."
    if not guarantee.secure_noise:
        noise = "Not secure: the noise is drawn in floating point, and its low bits may tell."
    return [(guarantee.proven, proof), (guarantee.secure_noise, noise), *_spent(facts)]


def _spent(facts: PublicView) -> list[tuple[bool, str]]:
    """What this run spent of its budget; and, where there were others, what all of them did."""
    guarantee = facts.guarantee
    own = guarantee.run_epsilon or guarantee.epsilon
    said = f"Spent by this run: ε = {rounded_up(own)}"
    said += "." if facts.budget is None else f" of the {facts.budget:g} that was allowed."
    found = [(facts.budget is None or own <= facts.budget * (1 + 1e-9), said)]
    if guarantee.runs > 1:
        when = ", a total that was chosen after seeing output" * guarantee.after_output
        total = f"ε = {rounded_up(guarantee.epsilon)}, δ = {rounded_up(guarantee.delta)}"
        found.append((not guarantee.after_output, f"All {guarantee.runs} runs: {total}{when}."))
    return found
