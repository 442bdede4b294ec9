"""Printed numbers: what was spent is never shown smaller, what is left never larger."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import BudgetExceeded
from tacit.privacy.budget import Budget, Guarantee
from tacit.rounding import SAME, rounded_down, rounded_up

POSITIVE = st.floats(1e-30, 1e30)


@given(value=POSITIVE, digits=st.integers(1, 9))
def test_what_was_spent_is_rounded_up_by_less_than_a_digit(value: float, digits: int) -> None:
    shown = float(rounded_up(value, digits))
    assert value * (1 - 2 * SAME) <= shown <= value * (1 + 10.0 ** (1 - digits))


@given(value=POSITIVE, digits=st.integers(1, 9))
def test_what_is_left_is_rounded_down_by_less_than_a_digit(value: float, digits: int) -> None:
    shown = float(rounded_down(value, digits))
    assert value * (1 - 10.0 ** (1 - digits)) <= shown <= value * (1 + 2 * SAME)


def test_numbers_that_were_printed_too_small_are_not_any_more() -> None:
    assert (f"{4.36849:.4g}", rounded_up(4.36849)) == ("4.368", "4.369")
    assert rounded_up(1.0000001) == "1.001"
    assert rounded_down(1.9999) == "1.999"


def test_rounding_of_sums_is_not_shown() -> None:
    for n in range(1, 50):
        assert float(rounded_up(n * 1e-5)) == float(f"{n}e-5")


def test_nothing_and_everything_are_written_as_they_are() -> None:
    assert (rounded_up(0.0), rounded_up(math.inf), rounded_down(0.0)) == ("0", "inf", "0")


def test_guarantees_budgets_and_refusals_are_printed_on_the_safe_side() -> None:
    guarantee = Guarantee(
        4.36849, 1.00001e-5, unit="a task", neighbours="replace", adversary="all others"
    )
    assert str(guarantee).startswith("(4.369, 1.001e-05)-DP for a task")
    assert str(Budget(0.12345678, 1e-5)) == "(epsilon=0.123457, delta=1e-05, replace)"
    assert str(Budget(0.12345612, 1e-5)) == "(epsilon=0.123457, delta=1e-05, replace)"
    refused = str(BudgetExceeded("a", 0.13999, 0.1400001, Budget(1.0)))
    assert "has epsilon 0.1399 left of" in refused
    assert "asks for 0.1401" in refused
