"""What is between the matrix products."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tacit.neural import kernels


@pytest.mark.parametrize("stride", [(1, 1), (2, 1), (2, 3)])
def test_folding_is_the_adjoint_of_taking_patches(stride: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 7, 9, 3, generator=generator, dtype=torch.float64)
    rows = kernels.patches(x, (2, 3), stride)
    down, across = (7 - 2) // stride[0] + 1, (9 - 3) // stride[1] + 1
    parts = torch.randn(2, down, across, 2, 3, 3, generator=generator, dtype=torch.float64)
    there = (rows.reshape(parts.shape) * parts).sum()
    back = (x * kernels.folded(parts, 7, 9, stride)).sum()
    torch.testing.assert_close(there, back)


def test_where_compiling_fails_the_plain_function_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def broken(*_: Any) -> Any:
        tried.append(1)
        raise torch._dynamo.exc.TorchDynamoException("no compiler")

    monkeypatch.setattr(torch, "compile", lambda function, **_: broken)
    kernels._compiled.cache_clear()
    run = kernels._compiled(kernels.max_pool)
    found = [run(torch.eye(2)[None, None], 2, 2, 0).tolist() for _ in range(2)]
    kernels._compiled.cache_clear()
    assert found == [[[[[1.0]]]]] * 2
    assert len(tried) == 1
