"""All clients at once compute what one client after the other computes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tacit.device.installation import steady
from tacit.errors import InvalidInput
from tacit.neural import products, stacked
from tacit.neural.isolation_trial import same_bits
from tacit.neural.stacked import Stacked


class Residual(nn.Module):
    """x + f(x), pooled."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Conv2d(2, 2, 3, padding="same", bias=False)
        self.last = nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.last((x + self.inner(x).relu()).mean((2, 3))))


IMAGE = (2, 9, 8)


def _conv(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(3))


def _mlp(*inner: nn.Module) -> nn.Module:
    return nn.Sequential(*inner, nn.Linear(4, 3))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], bool]] = {
    "mlp": (lambda: _mlp(nn.Linear(5, 4), nn.Tanh()), (5,), True),
    "no bias": (lambda: _mlp(nn.Linear(5, 4, bias=False)), (5,), True),
    "three axes": (lambda: _conv(nn.Linear(5, 4), nn.ReLU()), (2, 5), True),
    "cnn": (lambda: _conv(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.MaxPool2d(2)), IMAGE, True),
    "same": (lambda: _conv(nn.Conv2d(2, 4, (4, 3), padding="same")), IMAGE, True),
    "padded": (lambda: _conv(nn.Conv2d(2, 4, 3, padding=(2, 1))), IMAGE, True),
    "strides": (lambda: _conv(nn.Conv2d(2, 4, 3, stride=(2, 3), bias=False)), IMAGE, True),
    "pool": (lambda: _conv(nn.Conv2d(2, 4, 3), nn.MaxPool2d(3, 2, padding=1)), IMAGE, True),
    "residual": (Residual, IMAGE, True),
    "many channels": (lambda: _conv(nn.Conv2d(2, 9, 3), nn.Conv2d(9, 7, 2)), IMAGE, True),
    "groups": (lambda: _conv(nn.Conv2d(2, 4, 3, groups=2)), IMAGE, False),
    "dilated": (lambda: _conv(nn.Conv2d(2, 4, 2, dilation=2)), IMAGE, False),
    "mirror": (lambda: _conv(nn.Conv2d(2, 4, 3, padding_mode="reflect", padding=1)), IMAGE, False),
    "layer norm": (lambda: _mlp(nn.Linear(5, 4), nn.LayerNorm(4)), (5,), False),
    "group norm": (lambda: _conv(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4)), IMAGE, False),
}


def built(name: str) -> tuple[nn.Module, Tensor]:
    """The module in double precision, and inputs of three clients, four rows each."""
    torch.manual_seed(0)
    make, shape, _ = MODELS[name]
    module, x = make().double(), torch.randn(12, *shape, dtype=torch.float64)
    module(x)  # lazy layers take their shape
    return module, x


# torch warns that an even kernel needs unequal padding: the case that we want.
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("name", MODELS)
def test_batched_is_sequential_in_value_and_gradient(name: str) -> None:
    module, x = built(name)
    stacked = Stacked(module, x[:2])
    assert stacked.batched == MODELS[name][2]
    W = stacked.start() + torch.randn(3, stacked.size, dtype=torch.float64)
    together, alone = W.clone().requires_grad_(), W.clone().requires_grad_()
    inputs = [x.clone().requires_grad_(), x.clone().requires_grad_()]
    out = stacked(stacked.views(together), inputs[0])
    parts = [stacked.one(alone[k], inputs[1][4 * k : 4 * k + 4]) for k in range(3)]
    torch.testing.assert_close(out, torch.cat(parts), rtol=1e-9, atol=1e-9)
    weights = torch.randn_like(out)
    (out * weights).sum().backward()  # type: ignore[no-untyped-call] # torch's backward
    (torch.cat(parts) * weights).sum().backward()  # type: ignore[no-untyped-call] # as above
    torch.testing.assert_close(together.grad, alone.grad, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad, rtol=1e-9, atol=1e-9)


LARGE = {  # so much to multiply that oneDNN takes one client after the other, if it is there
    "padded": (lambda: nn.Conv2d(9, 7, 3, padding=(2, 1)), (9, 20, 18)),
    "strides": (lambda: nn.Conv2d(8, 33, (2, 3), stride=(1, 2), bias=False), (8, 20, 18)),
    "same": (lambda: nn.Conv2d(16, 16, 3, padding="same"), (16, 14, 9)),
    "uneven": (lambda: nn.Conv2d(16, 16, (4, 3), padding="same"), (16, 14, 9)),
    "of one channel": (lambda: nn.Conv2d(1, 17, 5), (1, 28, 28)),
    "of single pixels": (lambda: nn.Conv2d(65, 33, 1), (65, 14, 9)),  # a product
    "a product": (lambda: nn.Linear(513, 301), (513,)),
    "a product without bias": (lambda: nn.Linear(999, 257, bias=False), (999,)),
}
SMALL = {
    "padded": (lambda: nn.Conv2d(9, 7, 3, padding=(2, 1)), (9, 7, 5)),
    "of single pixels": (lambda: nn.Conv2d(17, 1, 1), (17, 7, 5)),
    "a product": (lambda: nn.Linear(37, 11), (37,)),
}


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize(
    ("make", "row", "large"),
    [(*case, large) for cases, large in ((LARGE, True), (SMALL, False)) for case in cases.values()],
)
def test_a_layer_has_the_same_bits_in_every_slot(
    make: Callable[[], nn.Conv2d | nn.Linear], row: tuple[int, ...], large: bool
) -> None:
    """Value and gradients, in single precision; and they are those of the layer itself."""
    torch.manual_seed(0)
    layer, own = make(), torch.randn(16, *row)
    stacked, found = Stacked(layer, own), []
    assert stacked.batched
    alone = layer(own.requires_grad_())
    assert (alone[:, 0].numel() * layer.weight.numel() >= products.MANY) == large
    gradients = torch.autograd.grad(alone.square().sum(), (*layer.parameters(), own))
    own = own.detach()
    for slot in range(4):
        W, x = torch.randn(4, stacked.size), torch.randn(4, *own.shape)
        W[slot], x[slot] = stacked.start(), own
        W, x = W.requires_grad_(), x.requires_grad_()
        with steady(own.device):
            out = stacked(stacked.views(W), x.flatten(0, 1))
            dW, dx = torch.autograd.grad(out.square().sum(), (W, x))
        found.append([out.view(4, 16, *out.shape[1:])[slot], dW[slot], dx[slot]])
    for each in found[1:]:
        assert all(same_bits(one, other) for one, other in zip(each, found[0], strict=True))
    expected = [alone.detach(), torch.cat([g.flatten() for g in gradients[:-1]]), gradients[-1]]
    for one, other in zip(found[0], expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5 * float(other.abs().max()))


def test_a_module_that_looks_at_the_whole_batch_is_not_trusted_to_be_batched() -> None:
    class Centred(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            return torch.as_tensor(self.layer(x - x.mean(0)))

    stacked = Stacked(Centred(), torch.zeros(2, 5))
    assert not stacked.batched
    W, x = torch.randn(3, stacked.size), torch.randn(12, 5)
    parts = [stacked.one(W[k], x[4 * k : 4 * k + 4]) for k in range(3)]
    torch.testing.assert_close(stacked(stacked.views(W), x), torch.cat(parts))


def test_tied_parameters_are_one_parameter() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(3, 3)
            self.second = self.first

        def forward(self, x: Tensor) -> Tensor:
            return torch.as_tensor(self.second(self.first(x).relu()))

    stacked = Stacked(Tied(), torch.zeros(2, 3))
    assert stacked.size == 12
    W, x = torch.randn(2, 12), torch.randn(6, 3)
    parts = [stacked.one(W[k], x[3 * k : 3 * k + 3]) for k in range(2)]
    torch.testing.assert_close(stacked(stacked.views(W), x), torch.cat(parts))


def test_dropout_differs_between_clients_and_is_off_in_evaluation() -> None:
    module = nn.Sequential(nn.Linear(4, 50), nn.Dropout(0.5), nn.Linear(50, 2))
    stacked = Stacked(module, torch.zeros(2, 4))
    W, x = stacked.start().repeat(2, 1), torch.ones(2, 4)
    first, second = stacked(stacked.views(W), x)
    assert not torch.equal(first, second)
    assert stacked.set_training(False)
    first, second = stacked(stacked.views(W), x)
    torch.testing.assert_close(first, second)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), "'1' is a BatchNorm1d.*GroupNorm"),
        (nn.BatchNorm2d(3), "the model is a BatchNorm2d"),
        (nn.Sequential(nn.Flatten(), nn.ReLU()), "no parameters"),
        (nn.LSTM(3, 2), "the model is a LSTM: recurrent layers cannot .* supported are linear"),
        (nn.Sequential(nn.Linear(3, 4), nn.GRU(4, 2)), "layer '1' is a GRU"),
        (nn.Sequential(nn.LazyLinear(2)), "layer '0' is a LazyLinear: it has no shapes"),
    ],
)
def test_what_cannot_be_personal_is_refused_with_the_reason(module: nn.Module, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        Stacked(module, torch.zeros(2, 3))


class Branching(nn.Linear):
    """Its way depends on numbers, which vmap cannot follow."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if x.sum() < 1 else super().forward(-x)


def test_what_vmap_cannot_follow_is_refused_in_our_words() -> None:
    with pytest.raises(InvalidInput, match="a Branching cannot be computed for many clients"):
        Stacked(Branching(3, 2), torch.zeros(2, 3))


IMAGES = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2))


@pytest.mark.parametrize(
    ("module", "row", "words"),
    [
        (nn.Linear(3, 2), (5,), r"takes \(3,\); rows of shape \(5,\) give it \(5,\)"),
        (
            IMAGES,
            (1, 5, 5),
            r"layer '2' is a Linear that takes \(8,\); .* \(1, 5, 5\) give it \(18,\)",
        ),
        (IMAGES, (4, 4), r"layer '0' is a Conv2d that takes \(1, height, width\); .* \(4, 4\)"),
        (nn.Sequential(nn.Unflatten(1, (2, 2)), IMAGES), (3,), "Unflatten that takes other shapes"),
        (nn.Conv2d(2, 2, 1), (4, 4), r"takes \(2, height, width\)"),  # two rows are no channels
        (nn.Embedding(9, 2), (3,), r"takes whole numbers, .* x.long\(\)"),
        (
            nn.Sequential(nn.Linear(3, 2), nn.Flatten(0)),
            (3,),
            r"one output a row; .* gives \(14,\)",
        ),
    ],
)
def test_rows_that_a_layer_does_not_take_are_told_by_both_shapes(
    module: nn.Module, row: tuple[int, ...], words: str
) -> None:
    with pytest.raises(InvalidInput, match=words):
        Stacked(module, torch.zeros(2, *row))


def test_a_buffer_is_refused_by_name() -> None:
    module = nn.Linear(3, 2)
    module.register_buffer("seen", torch.zeros(1))
    with pytest.raises(InvalidInput, match="'seen', which is no parameter"):
        Stacked(module, torch.zeros(2, 3))


def test_a_frozen_parameter_is_refused_by_name() -> None:
    """It had learned, and was noised, with all others."""
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    module[0].requires_grad_(False)
    with pytest.raises(InvalidInput, match=r"'0.weight' is frozen"):
        Stacked(module, torch.zeros(2, 3))


def test_the_callers_module_is_not_touched() -> None:
    module, x = built("cnn")
    before = {name: value.clone() for name, value in module.state_dict().items()}
    stacked = Stacked(module, x[:2])
    stacked(stacked.views(stacked.start().repeat(3, 1)), x)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert type(next(iter(module.children()))) is nn.Conv2d


@pytest.mark.parametrize("part", ["_pool_first", "_pool_inside"])
def test_pooling_first_gives_the_same_bits_forth_and_back(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many ties, zeros and numbers below zero: kernels and rows are small whole numbers. Only
    a bias that is added behind the pool has a gradient of a quarter of the terms."""
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-1, 2, (4, 1, 10, 10), generator=generator).float()

    def found() -> tuple[Tensor, ...]:
        both = Stacked(net, x[:2])
        W = torch.randint(-1, 2, (2, both.size), generator=generator.manual_seed(1)).float()
        W.requires_grad_()
        outputs = both(both.views(W), x)
        factors = torch.randn(outputs.shape, generator=generator)
        return outputs, *torch.autograd.grad((outputs * factors).sum(), W)

    if part == "_pool_first":
        monkeypatch.setattr(stacked, "_pool_inside", lambda _: None)
    swapped = found()
    assert (swapped[0] == 0).any()
    assert (swapped[0] > 0).any()
    monkeypatch.setattr(stacked, part, lambda _: None)
    (ours, gradient), (plain, of_plain) = swapped, found()
    torch.testing.assert_close(ours, plain, rtol=0, atol=0)
    exact = gradient.shape[1] - (3 if part == "_pool_inside" else 0)
    torch.testing.assert_close(gradient[:, :exact], of_plain[:, :exact], rtol=0, atol=0)
    torch.testing.assert_close(gradient, of_plain, rtol=1e-5, atol=1e-5)
