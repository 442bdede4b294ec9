"""Numbers of many tasks on a device, in the words of numpy.

``OnDevice`` is a tensor that numpy's functions take: ``np.log(x)``, ``np.where(x > 0, x, 0.0)``,
``x[:, None] * y`` are PyTorch's, by numpy's own protocols (NEP 13 and 18). So a formula is written
once, for both. What nobody asked of it yet is refused, and nothing turns into numpy's by itself.

**Isolation.** A task is a slot along the first axis, and its number the fastest in memory. What is
done to slots is one of

- elementwise operations, and sums over other axes than the tasks', made of elementwise additions
  of halves or of one term after the other, so that no library chooses their order;
- largest numbers, of any order the same;
- a product with one public matrix (``times_each``, ``between``): a column of the product is made of
  the same column alone, on a GPU by one kernel of one public shape.

What the last one, or an elementwise kernel at the end of an array, might make of a slot's place, is
tried before a private run (learners/shared_prior/on_device.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.lib.mixins import NDArrayOperatorsMixin
from torch import Tensor

from tacit.arrays import Array
from tacit.device.constants import sent
from tacit.device.installation import kernels_for
from tacit.linear.tridiagonal import TOGETHER


class OnDevice(NDArrayOperatorsMixin):
    """A tensor of doubles (or of truth values) with numpy's meaning.

    >>> x = OnDevice(torch.tensor([[1.0, 4.0], [0.0, 1.0]], dtype=torch.float64))
    >>> np.sqrt(np.maximum(x, 1.0)).sum(axis=1).host()
    array([3., 2.])
    """

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def host(self) -> Array:
        """As numpy's."""
        return np.asarray(self.tensor.detach().cpu().numpy())

    # --- numpy's protocols -----------------------------------------------------------------------

    def __array__(self, *_: Any, **__: Any) -> Array:
        raise TypeError("numbers on a device become numpy's by host() only")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **more: Any) -> Any:
        out = more.pop("out", None)
        if method != "__call__" or more:
            raise TypeError(f"{ufunc.__name__}.{method} is not known on a device")
        first, *others = (self._beside(each) for each in inputs)
        if out is None:
            return OnDevice(_UFUNCS[ufunc.__name__](first, *others))
        getattr(out[0].tensor, _IN_PLACE[ufunc.__name__])(*others)
        return out[0]

    def __array_function__(self, function: Any, _: Any, args: Any, more: Any) -> Any:
        found = _FUNCTIONS.get(function.__name__)
        if found is None:
            raise TypeError(f"numpy.{function.__name__} is not known on a device")
        return found(self._beside, *args, **more)

    def _beside(self, value: Any) -> Any:
        """A tensor on the same device, or a plain number."""
        if isinstance(value, OnDevice):
            return value.tensor
        if isinstance(value, np.ndarray) and value.ndim:
            return sent(value, self.tensor.device)
        return value.item() if isinstance(value, np.ndarray | np.generic) else value

    # --- as an array -----------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the tensor."""
        return tuple(self.tensor.shape)

    @property
    def ndim(self) -> int:
        """Of the tensor."""
        return self.tensor.ndim

    @property
    def T(self) -> OnDevice:
        """Of two axes."""
        return OnDevice(self.tensor.T)

    def __len__(self) -> int:
        return len(self.tensor)

    def __bool__(self) -> bool:
        return bool(self.tensor)

    def __iter__(self) -> Iterator[OnDevice]:
        return map(OnDevice, self.tensor)

    def __getitem__(self, key: Any) -> OnDevice:
        return OnDevice(self.tensor[self._key(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.tensor[self._key(key)] = self._beside(value)

    def _key(self, key: Any) -> Any:
        return tuple(map(self._beside, key)) if isinstance(key, tuple) else self._beside(key)

    def astype(self, kind: type) -> OnDevice:
        """As doubles, which they are."""
        assert kind is float
        return self

    def copy(self) -> OnDevice:
        """In memory of its own."""
        return OnDevice(self.tensor.clone())

    def reshape(self, *shape: Any) -> OnDevice:
        """In another shape."""
        return OnDevice(self.tensor.reshape(*shape))

    def transpose(self, *axes: int) -> OnDevice:
        """In another order of axes."""
        return OnDevice(self.tensor.permute(*axes))

    def swapaxes(self, one: int, other: int) -> OnDevice:
        """With two axes exchanged."""
        return OnDevice(self.tensor.transpose(one, other))

    def take(self, places: Array, axis: int) -> OnDevice:
        """(m, K): these columns of (m, k)."""
        assert axis == 1
        return OnDevice(self.tensor.T.index_select(0, self._beside(places)).T)

    def sum(self, axis: int, keepdims: bool = False) -> OnDevice:
        """Halves are added to halves."""
        left = self.tensor.movedim(axis, 0)
        while (width := len(left)) > 1:
            half, pairs = (width + 1) // 2, width // 2
            found = torch.empty_like(left[:half])
            torch.add(left[:pairs], left[half:], out=found[:pairs])
            found[pairs:] = left[pairs:half]
            left = found
        total = left[0] if len(left) else left.new_zeros(left.shape[1:])
        return OnDevice(total.unsqueeze(axis) if keepdims else total)

    def max(self, axis: int, keepdims: bool = False) -> OnDevice:
        """The largest."""
        return OnDevice(self.tensor.amax(axis, keepdims))

    def all(self, axis: int | None = None) -> OnDevice:
        """Whether all are true."""
        return OnDevice(self.tensor.all() if axis is None else self.tensor.all(axis))

    # --- each task by itself (linear/row_algebra.py) ---------------------------------------------

    def times_each(self, M: Any) -> OnDevice:
        """wᵀM of each row w (m, d), with one public M (d, k), or one for each (m, d, k)."""
        rows = self.tensor.T
        if M.ndim == 2:
            return OnDevice(_public_product(self._beside(M).T, rows).T)
        terms = self._beside(M).movedim(0, -1)  # (d, k, m)
        return OnDevice(_one_after_the_other(terms, rows[:, None]).T)

    def each_times(self, W: Any) -> OnDevice:
        """M w of each M (m, k, d), with its own w (m, d) or a public one (d,)."""
        terms = self.tensor.permute(2, 1, 0)  # (d, k, m)
        w = self._beside(W)
        rows = w[:, None, None] if w.ndim == 1 else w.T[:, None]
        return OnDevice(_one_after_the_other(terms, rows).T)

    def between(self, F: Array) -> OnDevice:
        """FᵀGF (m, r, r) of each symmetric G (m, d, d), with one public F (d, r)."""
        G, there = self.tensor.movedim(0, -1), self._beside(F).T
        d, _, m = G.shape
        left = _public_product(there, G.reshape(d, -1)).reshape(len(there), d, m)
        return OnDevice(_public_product(there, left).movedim(-1, 0))

    def tridiagonal(self, b: OnDevice) -> Any:
        """The form of each B (m, r, r) and b (m, r), in one kernel; None where there is none."""
        kernels = kernels_for(self.tensor)
        return None if kernels is None else kernels.Form.of(self, b)

    def inverses(self) -> OnDevice:
        """(I + B)⁻¹ of positive semi-definite B (m, r, r), by Gauss and Jordan: pivots are at least
        one, as those of I + B are. What is left of the diagonal is mirrored at the end."""
        A = self.tensor.movedim(0, -1)
        if (kernels := kernels_for(self.tensor)) is not None:
            return OnDevice(kernels.inverses(A).movedim(-1, 0))
        A = A.clone()
        A.diagonal(dim1=0, dim2=1).add_(1.0)
        for k in range(len(A)):
            column = torch.cat([A[:k, k], A[k, k:]])
            pivot = column[k].clamp(min=1.0)
            row = column / pivot
            for i in range(0, len(A), TOGETHER):
                some = slice(i, i + TOGETHER)
                A[some, i:].addcmul_(column[some, None], row[None, i:], value=-1)
            A[:k, k], A[k, k:] = row[:k], row[k:]
            A[k, k] = -1 / pivot
        for k in range(len(A)):
            A[k + 1 :, k] = A[k, k + 1 :]
        return OnDevice(A.neg_().movedim(-1, 0))

    def solutions(self, right: Array) -> OnDevice:
        """(I + B)⁻¹b (m, r) of each B (m, r, r), for one public b (r,)."""
        return self.inverses().each_times(right)

    def less_product(self, a: OnDevice, b: OnDevice) -> None:
        """Takes a·b away, in place."""
        self.tensor.addcmul_(a.tensor, b.tensor, value=-1)


def _public_product(M: Tensor, columns: Tensor) -> Tensor:
    """M (r, d) times (..., d, n): a GPU's kernels give each column the same bits; on a CPU they
    leave some at the end to another one (seen: MKL, the last four of 448), so there it is made of
    elementwise products, one after the other."""
    if columns.is_cuda:
        return torch.matmul(M, columns)
    terms = columns.movedim(-2, 0)[..., None, :]  # (d, ..., 1, n)
    return _one_after_the_other(terms.expand(*terms.shape[:-2], len(M), -1), M.T[:, :, None])


def _one_after_the_other(terms: Tensor, factors: Tensor) -> Tensor:
    """Σ_j terms[j] · factors[j], in the order of j."""
    total = terms[0] * factors[0]
    for term, factor in zip(terms[1:], factors[1:], strict=True):
        total.addcmul_(term, factor.expand_as(term))
    return total


# --- numpy's functions, by name ------------------------------------------------------------------


def _extreme(plain: Callable[..., Tensor], bound: str) -> Callable[[Any, Any], Tensor]:
    def found(a: Any, b: Any) -> Tensor:
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            return plain(a, b)
        tensor, number = (a, b) if isinstance(a, Tensor) else (b, a)
        return tensor.clamp(**{bound: number})

    return found


_UFUNCS: dict[str, Callable[..., Tensor]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
    "power": lambda a, b: a**b,
    "negative": torch.neg,
    "square": torch.square,
    "absolute": torch.abs,
    "sqrt": torch.sqrt,
    "exp": torch.exp,
    "log": torch.log,
    "log1p": torch.log1p,
    "isfinite": torch.isfinite,
    "isnan": torch.isnan,
    "greater": lambda a, b: a > b,
    "less": lambda a, b: a < b,
    "bitwise_and": lambda a, b: a & b,
    "maximum": _extreme(torch.maximum, "min"),
    "minimum": _extreme(torch.minimum, "max"),
}
_IN_PLACE = {"add": "add_", "subtract": "sub_", "multiply": "mul_", "divide": "div_"}

_There = Callable[[Any], Any]


def _where(there: _There, *parts: Any) -> OnDevice:
    return OnDevice(torch.where(*map(there, parts)))


def _clip(there: _There, values: Any, low: float, high: float) -> OnDevice:
    return OnDevice(there(values).clamp(low, high))


def _stack(there: _There, parts: Any, axis: int = 0) -> OnDevice:
    return OnDevice(torch.stack([there(part) for part in parts], dim=axis))


def _concatenate(there: _There, parts: Any, axis: int = 0) -> OnDevice:
    """Along another axis than the tasks', whose numbers stay the fastest in memory."""
    if axis == 0:
        return OnDevice(torch.cat([there(part) for part in parts]))
    found = torch.cat([there(part).movedim(0, -1) for part in parts], dim=axis - 1)
    return OnDevice(found.movedim(-1, 0))


def _column_stack(there: _There, parts: Any) -> OnDevice:
    columns = [part if part.ndim == 2 else part[:, None] for part in parts]
    return _concatenate(there, columns, axis=1)


def _repeat(there: _There, values: Any, count: int, axis: int) -> OnDevice:
    return OnDevice(there(values).repeat_interleave(count, dim=axis))


def _diagonal(there: _There, values: Any, axis1: int, axis2: int) -> OnDevice:
    return OnDevice(there(values).diagonal(dim1=axis1, dim2=axis2))


def _trace(there: _There, values: Any, axis1: int, axis2: int) -> OnDevice:
    return _diagonal(there, values, axis1, axis2).sum(axis=-1)


def _like(make: Callable[..., Tensor]) -> Callable[..., OnDevice]:
    def made(there: _There, values: Any, shape: Any = None, order: str = "C") -> OnDevice:
        whole = tuple(values.shape) if shape is None else shape
        return OnDevice(make(whole, dtype=torch.float64, device=there(values).device))

    return made


def _einsum(there: _There, which: str, matrices: Any, rows: Any) -> OnDevice:
    """(i, t): Σ_j of (i, j, t) and (j, t)."""
    assert which == "ijt,jt->it"
    found = _one_after_the_other(there(matrices).movedim(1, 0), there(rows)[:, None])
    return OnDevice(found)


def _array_equal(there: _There, one: Any, other: Any, equal_nan: bool = False) -> bool:
    a, b = (each.host() if isinstance(each, OnDevice) else each for each in (one, other))
    return np.array_equal(a, b, equal_nan=equal_nan)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "where": _where,
    "clip": _clip,
    "stack": _stack,
    "concatenate": _concatenate,
    "column_stack": _column_stack,
    "repeat": _repeat,
    "diagonal": _diagonal,
    "trace": _trace,
    "zeros_like": _like(torch.zeros),
    "ones_like": _like(torch.ones),
    "empty_like": _like(torch.empty),
    "full_like": lambda there, values, value: OnDevice(torch.full_like(there(values), value)),
    "einsum": _einsum,
    "array_equal": _array_equal,
}
