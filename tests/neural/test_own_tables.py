"""What a client looks up where many are computed at once is its own, or no number, or refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn import functional

from tacit.errors import InvalidInput
from tacit.neural.own_tables import OwnTables
from tacit.neural.stacked import Stacked


class OwnKind(nn.Embedding):
    """A class made of PyTorch's."""


class Words(nn.Module):
    """Looks its rows up in a table of nine."""

    def __init__(self, kind: type[nn.Embedding], *, by_function: bool) -> None:
        super().__init__()
        self.table, self.by_function = kind(9, 2), by_function

    def forward(self, x: Tensor) -> Tensor:
        words = x.long()
        if self.by_function:
            return functional.embedding(words, self.table.weight).sum(1)
        return torch.as_tensor(self.table(words).sum(1))


WORDS = [(nn.Embedding, False), (OwnKind, False), (nn.Embedding, True)]


@pytest.mark.parametrize("word", [9, -1])
@pytest.mark.parametrize(("kind", "by_function"), WORDS)
def test_what_is_not_in_a_clients_table_is_no_number_and_nobody_elses(
    kind: type[nn.Embedding], by_function: bool, word: int
) -> None:
    """vmap by itself answers with the first row of the next client's, or the last of the one
    before."""
    found = Stacked(Words(kind, by_function=by_function), torch.zeros(2, 3))
    W = torch.randn(3, found.size, requires_grad=True)
    x = torch.arange(9.0).reshape(3, 3).repeat_interleave(2, 0)
    x[2, 1] = word  # the second client's
    outputs = found(found.views(W), x)
    assert outputs[2].isnan().all()
    kept = [0, 1, 3, 4, 5]
    alone = torch.stack([found.one(W[i // 2], x[i : i + 1])[0] for i in kept])
    torch.testing.assert_close(outputs[kept], alone)
    (slopes,) = torch.autograd.grad(outputs[2:4].square().sum(), W)
    assert not slopes[[0, 2]].any()


def test_rows_of_one_client_are_looked_up_one_by_one() -> None:
    """So that each has a gradient of its own: a word of nobody's table has none, or no number."""
    found = Stacked(Words(OwnKind, by_function=False), torch.zeros(2, 3))
    W, x, y = torch.randn(2, found.size), torch.zeros(4, 3), torch.zeros(4, 2)
    x[1] = 9.0

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).square().sum(1)

    each = found.row_gradients(found.views(W), x, y, loss).view(2, 2, 9, 2)
    assert not each[1, :, 1:].any()
    assert each[0, 0, 0].any()


class Filled(nn.Module):
    """Puts zeros where its rows say, in a table of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.ones(3, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.table.index_fill(0, x[:, 0].long(), 0.0).sum() * x


def test_filling_places_is_refused_before_anything_is_computed() -> None:
    """The place −1 is the last of a client's own, and vmap fills that of the client before."""
    with pytest.raises(InvalidInput, match=r"index_fill may reach another .* use torch.where"):
        Stacked(Filled(), torch.zeros(2, 1))


# --- all operations by an index ------------------------------------------------------------------

Operation = Callable[[Tensor, Tensor], Tensor]
OPERATIONS: dict[str, Operation] = {
    "embedding": lambda w, i: functional.embedding(i, w),
    "embedding by its other name": torch.embedding,
    "embedding with a padding": lambda w, i: functional.embedding(i, w, padding_idx=0),
    "embedding as compiled": lambda w, i: torch.ops.aten.embedding.default(w, i),
    "embedding bag": lambda w, i: functional.embedding_bag(i[:, None], w),
    "brackets": lambda w, i: w[i],
    "index select": lambda w, i: w.index_select(0, i),
    "take": lambda w, i: torch.take(w, i),
    "take along": lambda w, i: torch.take_along_dim(w, i[:, None], 0),
    "gather": lambda w, i: w.gather(0, i[:, None].expand(-1, 2)),
    "scatter": lambda w, i: w.scatter(0, i[:, None].expand(-1, 2), 1.0),
    "scatter add": lambda w, i: w.scatter_add(0, i[:, None].expand(-1, 2), torch.ones(2, 2)),
    "index add": lambda w, i: w.index_add(0, i, torch.ones(2, 2)),
    "index copy": lambda w, i: w.index_copy(0, i[:1], torch.ones(1, 2)),
    "index put": lambda w, i: w.index_put((i,), torch.ones(2)),
    "index fill": lambda w, i: w.index_fill(0, i, 9.0),
    "index fill, in place": lambda w, i: w.clone().index_fill_(0, i, 9.0),
    "put": lambda w, i: w.put(i, torch.ones(2)),
    "one hot": lambda w, i: functional.one_hot(i, 3).to(w) @ w,
}


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("place", [-1, 0, 2, 3, 5])
@pytest.mark.parametrize("name", OPERATIONS)
def test_no_operation_by_an_index_reaches_another_client(name: str, place: int) -> None:
    """The second of four changes its numbers and its places; the others find what they found."""
    tables, places = torch.randn(4, 3, 2), torch.ones(4, 2, dtype=torch.int64)
    places[0] = places[2] = place  # beyond the last of all clients' would raise for everybody
    changed, elsewhere = tables.clone(), places.clone()
    changed[1], elsewhere[1] = -1.0, place

    def found(tables: Tensor, places: Tensor) -> Tensor:
        with OwnTables():
            return vmap(OPERATIONS[name])(tables, places)[[0, 2, 3]]

    try:
        before = found(tables, places)
    except (InvalidInput, IndexError, RuntimeError):
        return  # refused
    after = found(changed, elsewhere)
    torch.testing.assert_close(before, after, rtol=0, atol=0, equal_nan=True)
