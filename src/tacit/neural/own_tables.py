"""What a client looks up, it looks up in its own tables.

``torch.func.vmap`` lays what clients have of one kind one after the other, and an embedding, or
``index_fill``, finds what is not in a client's own in another's: a word too many in the next one's,
and the place −1, which is the last of one's own, in that of the one before. Other operations by an
index raise, or look where they should (tests/neural/test_own_tables.py).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from tacit.errors import InvalidInput

REFUSED = {
    "embedding": "torch.nn.functional.embedding, or a layer",
    "index_fill": "torch.where",
    "index_fill_": "torch.where",
}
"""Operations that would find another client's numbers, by name; and what does the same."""


class OwnTables(TorchFunctionMode):
    """While a module is evaluated for many clients at once, whoever calls what: a layer, a class
    made of one, or a function."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is functional.embedding:
            return _looked_up(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "").partition(".")[0]
        if name in REFUSED:
            raise InvalidInput(
                f"{name} may reach another client's numbers where many are computed at once; "
                f"use {REFUSED[name]}"
            )
        return func(*args, **(kwargs or {}))


def _looked_up(input: Tensor, weight: Tensor, *rest: Any, **more: Any) -> Tensor:
    """As torch's, of whole numbers (rows, ...); what is not in the table is no number."""
    inside = (input >= 0) & (input < len(weight))
    found = functional.embedding(input.clamp(0, len(weight) - 1), weight, *rest, **more)
    return torch.where(inside[..., None], found, torch.nan)
