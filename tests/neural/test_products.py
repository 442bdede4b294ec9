"""Products of all clients: right, and blind to where a client lies."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tacit.neural import products
from tacit.neural.isolation_trial import same_bits
from tacit.neural.products import add_product, product

SIZES = [(32, 784, 200), (16, 513, 301), (31, 1000, 77), (32, 64, 16), (5, 7, 3)]  # (n, k, o)


def factors(n: int, k: int, o: int) -> tuple[Tensor, Tensor, Tensor]:
    """Four clients', all of them the same; the second as a view, as weights are."""
    generator = torch.Generator().manual_seed(0)
    a, b, bias = (torch.randn(*size, generator=generator) for size in ((n, k), (o, k), (o,)))
    return a.repeat(4, 1, 1), b.repeat(4, 1, 1).mT, bias.repeat(4, 1)


@pytest.mark.parametrize("size", SIZES)
def test_a_product_has_the_same_bits_for_every_client(size: tuple[int, int, int]) -> None:
    a, b, bias = factors(*size)
    found = product(a, b, bias)
    assert all(same_bits(one, found[0]) for one in found)
    exact = a[0].double() @ b[0].double() + bias[0].double()
    torch.testing.assert_close(found[0].double(), exact, rtol=0, atol=1e-3)
    torch.testing.assert_close(found[0], product(a, b)[0] + bias[0])


@pytest.mark.parametrize("size", SIZES)
def test_a_product_is_added_in_place_for_every_client(size: tuple[int, int, int]) -> None:
    a, b, _ = factors(*size)
    total = torch.ones(4, size[0], size[2])
    add_product(total, a, b, -0.5)
    assert all(same_bits(one, total[0]) for one in total)
    exact = 1 - 0.5 * (a[0].double() @ b[0].double())
    torch.testing.assert_close(total[0].double(), exact, rtol=0, atol=1e-3)


@pytest.mark.skipif(not products._onednn(), reason="PyTorch without oneDNN")
def test_clients_are_taken_one_by_one_for_the_size_of_their_own_product_alone() -> None:
    alone = [products.in_turn(torch.zeros(m, 32, 784), 32 * 784 * 200) for m in (1, 2, 99)]
    assert alone == [True] * 3
    assert not products.in_turn(torch.zeros(10**4, 5, 7), 5 * 7 * 3)
    assert not products.in_turn(torch.zeros(1, 32, 784).double(), 32 * 784 * 200)
