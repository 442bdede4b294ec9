"""Cores are given out once, and what is on one of them raises no floating-point warning."""

from __future__ import annotations

from threading import get_ident

import numpy as np

from tacit.linear.threads import on_all_cores


def test_what_has_a_core_keeps_to_it() -> None:
    def threads(_: int) -> set[int]:
        return {get_ident(), *on_all_cores(lambda _: get_ident(), range(5))}

    assert all(len(each) == 1 for each in on_all_cores(threads, range(5)))


def test_results_come_in_the_order_of_their_items() -> None:
    assert list(on_all_cores(lambda a, b: a - b, range(50), range(50, 0, -1))) == [
        a - b for a, b in zip(range(50), range(50, 0, -1), strict=True)
    ]


def test_numbers_in_the_data_are_no_errors() -> None:
    found = list(on_all_cores(lambda x: np.array([x]) * 1e300, [1e300, 1.0]))
    assert np.isinf(found[0][0])
