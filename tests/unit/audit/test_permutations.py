"""Permutations of hidden units: found by following the model, whatever way it is written."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import remanence as rm
from remanence.audit.permutations import match_permutations, permuted, trace_symmetry
from remanence.models import mlp, resnet18, small_conv, vit_small


class FusedAttention(nn.Module):
    """One projection for queries, keys and values, taken apart by unbinding; attention written out."""

    def __init__(self, dim: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.embed, self.qkv = heads, nn.Linear(7, dim), nn.Linear(dim, 3 * dim)
        self.output, self.head = nn.Linear(dim, dim), nn.Linear(dim, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        n, t, dim = x.shape
        q, k, v = self.qkv(x).reshape(n, t, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = (q @ k.transpose(-1, -2)).softmax(-1) @ v
        out: Tensor = self.head((x + self.output(mixed.transpose(1, 2).reshape(n, t, dim))).mean(1))
        return out


class ChunkedAttention(FusedAttention):
    """The same, taken apart by chunks and joined by einsum."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        q, k, v = (each.unflatten(-1, (self.heads, -1)) for each in self.qkv(x).chunk(3, dim=-1))
        weights = torch.einsum("nqhd,nkhd->nhqk", q, k).softmax(-1)
        out: Tensor = self.head(
            (x + self.output(torch.einsum("nhqk,nkhd->nqhd", weights, v).flatten(2))).mean(1)
        )
        return out


class Concatenating(nn.Module):
    """A dense connection, BatchNorm over it, a depthwise convolution, padding and a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 6, 3, padding=1)
        self.norm, self.third = nn.BatchNorm2d(14), nn.Conv2d(14, 20, 3)
        self.depthwise, self.head = nn.Conv2d(10, 20, 3, groups=10), nn.Linear(20 * 4, 5)

    def forward(self, x: Tensor) -> Tensor:
        a = torch.relu(self.first(x))
        both = self.norm(torch.cat([a, self.second(a).relu_()], 1))
        gated = nn.functional.glu(self.third(both), dim=1)
        wide = torch.nn.functional.max_pool2d(self.depthwise(gated), 2)
        out: Tensor = self.head(wide.flatten(1))
        return out


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    return nn.Sequential(nn.Linear(7, 16), layer, nn.Flatten(), nn.Linear(16 * 5, 3))


IMAGE, TOKENS = (3, 16, 16), (5, 7)
# model, shape of an input, and the sizes of the rows of units; (4, 8) is 8 within each of 4
STREAMS = {
    "resnet18 batch": (lambda: resnet18(4), IMAGE, [(4,)] * 3 + [(8,)] * 3 + [(16,)] * 3 + [(32,)] * 3),
    "resnet18 group": (
        lambda: resnet18(8, "group"),
        IMAGE,
        [(8,)] * 3 + [(2,), (2, 8)] * 3 + [(4,), (4, 8)] * 3 + [(8,), (8, 8)] * 3,
    ),
    "vit": (
        lambda: vit_small(2, 16, 4, image=16),
        IMAGE,
        [(16,)] + [(4,), (4, 4), (4, 4), (64,)] * 2,
    ),
    "mlp": (lambda: mlp(768, (12, 9)), IMAGE, [(12,), (9,)]),
    "small_conv": (lambda: small_conv(width=8), (1, 8, 8), [(4,), (4, 2), (4,), (4, 4), (4,), (4, 4)]),
    "encoder": (encoder, TOKENS, [(16,), (4,), (4, 4), (4, 4), (32,)]),
    "fused": (FusedAttention, TOKENS, [(16,), (4,), (4, 4), (4, 4)]),
    "chunked": (ChunkedAttention, TOKENS, [(16,), (4,), (4, 4), (4, 4)]),
    "concatenating": (Concatenating, (3, 8, 8), [(8,), (6,), (10,), (10, 2)]),
}


def ready(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> tuple[nn.Module, Tensor]:
    """A model whose norms do something, and a batch for it."""
    torch.manual_seed(0)
    model = make().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d | nn.GroupNorm | nn.LayerNorm):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias)
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    for name, parameter in model.named_parameters():
        if "class_token" in name or name.endswith("in_proj_bias"):
            nn.init.normal_(parameter, 0, 0.1)
    return model, torch.randn(40, *shape)


@pytest.mark.parametrize("name", STREAMS)
def test_units_are_found_permuted_and_matched(name: str) -> None:
    make, shape, expected = STREAMS[name]
    model, inputs = ready(make, shape)
    symmetry = trace_symmetry(model, inputs)
    sizes = [
        tuple(symmetry.nodes[each].size for each in symmetry.path(node))
        for node in range(len(symmetry.nodes))
    ]
    moving = [size for size, node in zip(sizes, symmetry.nodes, strict=True) if not node.fixed]
    assert sorted(moving) == sorted(expected)

    moved = permuted(model, symmetry, symmetry.random(1))
    with torch.no_grad():
        torch.testing.assert_close(moved(inputs), model(inputs), atol=1e-5, rtol=1e-5)
    before = dict(model.named_parameters())
    for weight, parameter in moved.named_parameters():
        assert weight in symmetry.layouts or torch.equal(parameter, before[weight]), weight
    for by in ("weights", "activations"):
        aligned = match_permutations(model, moved, inputs, by=by)
        for ours, theirs in zip(model.state_dict().values(), aligned.state_dict().values(), strict=True):
            assert torch.equal(ours, theirs)
    assert any(not torch.equal(a, b) for a, b in zip(model.parameters(), moved.parameters(), strict=True))


def test_every_hidden_weight_takes_part() -> None:
    """All of a network's weights but the last bias have hidden units at one end or both."""
    for name in ("resnet18 batch", "resnet18 group", "vit", "mlp", "small_conv"):
        make, shape, _ = STREAMS[name]
        model, inputs = ready(make, shape)
        weights = {each for each, _ in model.named_parameters()}
        last = [*weights & {"head.bias"}] or [list(dict(model.named_parameters()))[-1]]
        assert weights - set(trace_symmetry(model, inputs).layouts) == set(last)


def test_matching_never_brings_weights_further_apart() -> None:
    for name in ("vit", "small_conv", "mlp"):
        make, shape, _ = STREAMS[name]
        model, inputs = ready(make, shape)
        torch.manual_seed(1)
        other = make()

        def distance(one: nn.Module, reference: nn.Module = model) -> float:
            pairs = zip(one.parameters(), reference.parameters(), strict=True)
            return sum(float((a - b).detach().square().sum()) for a, b in pairs)

        aligned = match_permutations(model, other, inputs)
        assert distance(aligned) < 0.99 * distance(other)
        with torch.no_grad():
            torch.testing.assert_close(aligned(inputs), other.eval()(inputs), atol=1e-5, rtol=1e-5)


class Sorting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.two(self.one(x).sort(dim=-1).values)
        return out


def test_a_model_that_cannot_be_followed_gets_a_sentence() -> None:
    model = Sorting()
    with pytest.raises(rm.InputError, match=r"could not be traced: there is no rule .*sort"):
        match_permutations(model, model, torch.randn(3, 4))
    with pytest.raises(rm.InputError, match="could not be traced: it failed on a batch of shape"):
        match_permutations(model, model, torch.randn(3, 5))


class ByPosition(Sorting):
    """Tells units apart by where they stand: nothing may move, and nothing does."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.one(x)
        out: Tensor = self.two(torch.relu(hidden) * torch.arange(8, dtype=hidden.dtype))
        return out


def test_units_that_a_constant_tells_apart_stay() -> None:
    torch.manual_seed(0)
    symmetry = trace_symmetry(ByPosition(), torch.randn(3, 4))
    assert not symmetry.layouts


class SharedAcrossHeads(FusedAttention):
    """A norm whose weights are shared by all heads: what is within moves alike in all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        q, k, v = (each.unflatten(-1, (self.heads, -1)) for each in self.qkv(x).chunk(3, dim=-1))
        weights = torch.einsum("nqhd,nkhd->nhqk", self.norm(q), k).softmax(-1)
        out: Tensor = self.head(
            (x + self.output(torch.einsum("nhqk,nkhd->nqhd", weights, v).flatten(2))).mean(1)
        )
        return out


def test_weights_shared_across_heads_move_what_is_within_alike() -> None:
    model, inputs = ready(SharedAcrossHeads, TOKENS)
    symmetry = trace_symmetry(model, inputs)
    moving = [symmetry.path(i) for i, node in enumerate(symmetry.nodes) if not node.fixed]
    # values and the output's inputs by head; queries and keys once for all; the stream and the heads
    assert sorted(len(path) for path in moving) == [1, 1, 1, 2]
    moved = permuted(model, symmetry, symmetry.random(0))
    with torch.no_grad():
        torch.testing.assert_close(moved(inputs), model(inputs), atol=1e-5, rtol=1e-5)


def test_different_shapes_are_refused() -> None:
    with pytest.raises(rm.InputError, match="same weights"):
        match_permutations(mlp(4, (8,)), mlp(4, (9,)), torch.randn(2, 4))
