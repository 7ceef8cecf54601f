"""Small architectures with something particular about each; `draw` picks the sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Draw = Callable[[int, int], int]
"""(low, high) -> a whole number between them."""
Problem = tuple[nn.Module, Any]
"""A model and the inputs of a batch of `N` examples; every model ends in ten logits."""

N = 5
CLASSES = 10


def image(channels: int, side: int, n: int = N) -> Tensor:
    return torch.randn(n, channels, side, side)


def tokens(length: int, vocabulary: int = 11, n: int = N) -> Tensor:
    return torch.randint(0, vocabulary, (n, length))


class Head(nn.Module):
    """Whatever shape comes, ten logits without parameters: a fixed random projection of the flat features."""

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        generator = torch.Generator().manual_seed(flat.shape[1])
        fixed = torch.randn(flat.shape[1], CLASSES, generator=generator, dtype=torch.float64)
        return flat @ fixed.to(flat) / flat.shape[1] ** 0.5


def mlp(draw: Draw) -> Problem:
    width = draw(3, 9)
    return nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Linear(width, CLASSES)), torch.randn(N, 6)


def mlp_inplace(draw: Draw) -> Problem:
    width = draw(3, 9)
    return nn.Sequential(nn.Linear(6, width), nn.ReLU(inplace=True), nn.Linear(width, CLASSES)), torch.randn(
        N, 6
    )


def linear_positions(draw: Draw) -> Problem:
    t, d = draw(2, 12), draw(2, 8)
    return nn.Sequential(nn.Linear(d, draw(2, 9)), nn.Tanh(), Head()), torch.randn(N, t, d)


def linear_two_leading(draw: Draw) -> Problem:
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), Head()), torch.randn(N, draw(1, 4), draw(1, 4), 4)


def conv1d(draw: Draw) -> Problem:
    layer = nn.Conv1d(
        4, 6, draw(1, 3), draw(1, 2), padding=draw(0, 2), dilation=draw(1, 2), groups=draw(1, 2)
    )
    return nn.Sequential(layer, nn.Tanh(), Head()), torch.randn(N, 4, 11)


def conv2d(draw: Draw) -> Problem:
    layer = nn.Conv2d(
        4, 6, (draw(1, 3), draw(1, 3)), draw(1, 3), padding=draw(0, 2), dilation=draw(1, 2), groups=draw(1, 2)
    )
    return nn.Sequential(layer, nn.Tanh(), Head()), image(4, draw(8, 11))


def conv2d_small_map(draw: Draw) -> Problem:
    """Few positions, many channels: the Gram form."""
    channels, side = draw(20, 30), draw(2, 4)
    first = nn.Conv2d(channels, channels, 3, draw(1, 2), padding=1)
    return nn.Sequential(first, nn.Tanh(), Head()), image(channels, side)


def conv2d_depthwise(draw: Draw) -> Problem:
    layer = nn.Conv2d(6, 12, 3, padding=1, groups=6)
    return nn.Sequential(layer, nn.Tanh(), nn.Conv2d(12, 4, 1), Head()), image(6, draw(4, 8))


def conv2d_padding_modes(draw: Draw) -> Problem:
    mode = ("zeros", "circular", "reflect", "replicate")[draw(0, 3)]
    padding: Any = ("same", "valid", 1)[draw(0, 2)]
    layer = nn.Conv2d(3, 4, draw(2, 3), padding=padding, padding_mode=mode)
    return nn.Sequential(layer, nn.Tanh(), Head()), image(3, 7)


def conv3d(draw: Draw) -> Problem:
    layer = nn.Conv3d(2, 4, draw(1, 3), draw(1, 2), padding=1, groups=draw(1, 2))
    return nn.Sequential(layer, nn.Tanh(), Head()), torch.randn(N, 2, 5, 5, 5)


def conv_transpose1d(draw: Draw) -> Problem:
    layer = nn.ConvTranspose1d(4, 6, 3, draw(1, 3), padding=draw(0, 1), groups=draw(1, 2))
    return nn.Sequential(layer, nn.Tanh(), Head()), torch.randn(N, 4, 6)


def conv_transpose2d(draw: Draw) -> Problem:
    layer = nn.ConvTranspose2d(4, 6, 3, 2, padding=draw(0, 1), output_padding=draw(0, 1), dilation=draw(1, 2))
    return nn.Sequential(layer, nn.Tanh(), Head()), image(4, 5)


def batch_norm(draw: Draw) -> Problem:
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, draw(1, 2)), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.Conv2d(6, 4, 1), Head()
    )
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.normal_(module.weight)
    return model, image(3, draw(6, 9))


def batch_norm1d(draw: Draw) -> Problem:
    d = draw(3, 8)
    return nn.Sequential(nn.Linear(d, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, CLASSES)), torch.randn(
        N, d
    )


def group_norm(draw: Draw) -> Problem:
    groups = (1, 2, 3, 6)[draw(0, 3)]
    layers = (nn.Conv2d(3, 6, 3), nn.GroupNorm(groups, 6), nn.ReLU(inplace=True), nn.Conv2d(6, 4, 1), Head())
    return nn.Sequential(*layers), image(3, draw(5, 9))


def instance_norm(draw: Draw) -> Problem:
    tracked = bool(draw(0, 1))
    norm = nn.InstanceNorm2d(6, affine=True, track_running_stats=tracked)
    return nn.Sequential(nn.Conv2d(3, 6, 3), norm, nn.Tanh(), Head()), image(3, draw(5, 8))


def layer_norm(draw: Draw) -> Problem:
    t, d = draw(1, 6), draw(3, 8)
    shape: Any = d if draw(0, 1) else (t, d)
    return nn.Sequential(nn.Linear(d, d), nn.LayerNorm(shape), nn.Tanh(), Head()), torch.randn(N, t, d)


def rms_norm(draw: Draw) -> Problem:
    d = draw(3, 8)
    return nn.Sequential(nn.Linear(d, d), nn.RMSNorm(d), nn.Tanh(), Head()), torch.randn(N, draw(1, 5), d)


def embedding(draw: Draw) -> Problem:
    padding = 0 if draw(0, 1) else None
    return nn.Sequential(nn.Embedding(11, draw(2, 6), padding_idx=padding), nn.Tanh(), Head()), tokens(
        draw(2, 9)
    )


def embedding_bag(draw: Draw) -> Problem:
    return nn.Sequential(nn.EmbeddingBag(11, 4, mode="mean"), nn.Tanh(), Head()), tokens(draw(2, 6))


def prelu(draw: Draw) -> Problem:
    slopes = (1, 6)[draw(0, 1)]
    return nn.Sequential(nn.Conv2d(3, 6, 3), nn.PReLU(slopes), Head()), image(3, 6)


class Attention(nn.Module):
    def __init__(self, batch_first: bool, heads: int, bias: bool) -> None:
        super().__init__()
        self.batch_first = batch_first
        self.attention = nn.MultiheadAttention(8, heads, bias=bias, batch_first=batch_first)

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.batch_first else x.transpose(0, 1)
        y = self.attention(x, x, x, need_weights=False)[0]
        return y if self.batch_first else y.transpose(0, 1)


def attention(draw: Draw) -> Problem:
    block = Attention(bool(draw(0, 1)), (1, 2, 4)[draw(0, 2)], bool(draw(0, 1)))
    return nn.Sequential(block, nn.Tanh(), Head()), torch.randn(N, draw(2, 6), 8)


def cross_attention(draw: Draw) -> Problem:
    class Cross(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.queries = nn.Parameter(torch.randn(3, 8))
            self.attention = nn.MultiheadAttention(8, 2, kdim=5, vdim=5, batch_first=True, add_bias_kv=True)

        def forward(self, x: Tensor) -> Tensor:
            queries = self.queries.unsqueeze(0).expand(len(x), -1, -1)
            out: Tensor = self.attention(queries, x, x)[0]
            return out

    return nn.Sequential(Cross(), Head()), torch.randn(N, draw(2, 5), 5)


def transformer(draw: Draw) -> Problem:
    layer = nn.TransformerEncoderLayer(
        8, 2, 12, activation="gelu", norm_first=bool(draw(0, 1)), batch_first=True
    )
    stack = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return nn.Sequential(stack, Head()), torch.randn(N, draw(2, 6), 8)


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y))
        y += x
        return F.relu(y, inplace=True)


def residual(draw: Draw) -> Problem:
    c = draw(3, 6)
    model = nn.Sequential(nn.Conv2d(3, c, 3), Residual(c), nn.MaxPool2d(2), Residual(c), Head())
    return model, image(3, 8)


def channels_last(draw: Draw) -> Problem:
    model, x = residual(draw)
    return model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)


class Vision(nn.Module):
    """A class token and position embedding outside any layer, a layer scale."""

    def __init__(self, patches: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 2, stride=2)
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.positions = nn.Parameter(torch.randn(1, patches + 1, 8))
        self.scale = nn.Parameter(torch.randn(8))
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], dim=1) + self.positions
        return x + torch.tanh(self.linear(x)) * self.scale


def vision(draw: Draw) -> Problem:
    side = 2 * draw(1, 3)
    return nn.Sequential(Vision((side // 2) ** 2), Head()), image(3, side)


class Tied(nn.Module):
    """GPT-2's shape: causal attention, a product the other way round, output tied to the embedding."""

    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, width)
        self.positions = nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Parameter(torch.randn(width, 3 * width) * 0.3)
        self.qkv_bias = nn.Parameter(torch.randn(3 * width) * 0.3)
        self.out = nn.Linear(width, width)

    def forward(self, ids: Tensor) -> Tensor:
        n, t = ids.shape
        h = self.embedding(ids) + self.positions(torch.arange(t, device=ids.device))
        flat = torch.addmm(self.qkv_bias, self.norm(h).view(n * t, -1), self.qkv)
        q, k, v = flat.view(n, t, 1, -1).transpose(1, 2).chunk(3, dim=-1)
        h = h + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True)[:, 0])
        return F.linear(h[:, -1], self.embedding.weight)[:, :CLASSES]


def gpt2(draw: Draw) -> Problem:
    t = draw(2, 6)
    return Tied(draw(2, 3) * 2, t), tokens(t)


class Bert(nn.Module):
    """BERT's shape: three embeddings, a post-norm encoder, the pooled first token; a mask by keyword."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.words, self.kinds = nn.Embedding(11, 8, padding_idx=0), nn.Embedding(2, 8)
        self.positions = nn.Embedding(length, 8)
        self.norm = nn.LayerNorm(8)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.pooler, self.head = nn.Linear(8, 8), nn.Linear(8, CLASSES)
        self.register_buffer("position_ids", torch.arange(length)[None])

    def forward(self, ids: Tensor, padding: Tensor) -> Tensor:
        h = self.words(ids) + self.kinds(torch.zeros_like(ids)) + self.positions(self.position_ids)
        h = self.encoder(self.norm(h), src_key_padding_mask=padding)
        out: Tensor = self.head(torch.tanh(self.pooler(h[:, 0])))
        return out


def bert(draw: Draw) -> Problem:
    t = draw(2, 6)
    ids = tokens(t)
    padding = torch.zeros(N, t, dtype=torch.bool)
    padding[0, -1] = True
    return Bert(t), {"ids": ids, "padding": padding}


class Reused(nn.Module):
    """One linear layer and one convolution, each used three times."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.GroupNorm(1, channels)
        self.linear = nn.Linear(CLASSES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = torch.tanh(self.norm(self.conv(x)))
        y = x.flatten(1)[:, :CLASSES]
        for _ in range(3):
            y = torch.tanh(self.linear(y))
        return y


def reused(draw: Draw) -> Problem:
    channels = draw(2, 4)
    return Reused(channels), image(channels, 4)


def tied_linear(draw: Draw) -> Problem:
    model = nn.Sequential(nn.Linear(7, 7), nn.Tanh(), nn.Linear(7, 7), nn.Tanh(), Head())
    model[2].weight = model[0].weight
    return model, torch.randn(N, draw(1, 4), 7)


def frozen(draw: Draw) -> Problem:
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, CLASSES))
    model[draw(0, 1) * 2].requires_grad_(False)
    model[4].bias.requires_grad_(False)
    return model, torch.randn(N, 6)


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module], batch_first: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 4)
        self.recurrent = kind(4, 5, num_layers=2, bidirectional=True, batch_first=batch_first)
        self.batch_first = batch_first
        self.head = nn.Linear(10, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        h = self.recurrent(x if self.batch_first else x.transpose(0, 1))[0]
        out: Tensor = self.head(h[:, -1] if self.batch_first else h[-1])
        return out


def lstm(draw: Draw) -> Problem:
    return Recurrent(nn.LSTM, bool(draw(0, 1))), tokens(draw(2, 5))


def gru(draw: Draw) -> Problem:
    return Recurrent(nn.GRU, bool(draw(0, 1))), tokens(draw(2, 5))


def weight_norm(draw: Draw) -> Problem:
    layers = [nn.utils.parametrizations.weight_norm(layer) for layer in (nn.Conv2d(3, 4, 3), nn.Linear(6, 6))]
    return nn.Sequential(layers[0], nn.Tanh(), nn.Flatten(), nn.LazyLinear(6), layers[1], Head()), image(
        3, draw(4, 6)
    )


def spectral_norm(draw: Draw) -> Problem:
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(6, draw(3, 6)))
    return nn.Sequential(layer, nn.Tanh(), Head()), torch.randn(N, 6)


class FreeParameters(nn.Module):
    """A table indexed by position, a matrix from the left, an einsum, a gate, a division, a learned query."""

    def __init__(self, t: int) -> None:
        super().__init__()
        self.left, self.mix = nn.Parameter(torch.randn(3, t)), nn.Parameter(torch.randn(4, 5))
        self.gate, self.temperature = nn.Parameter(torch.randn(5)), nn.Parameter(torch.tensor(0.7))
        self.bias = nn.Parameter(torch.randn(3, 1))
        self.unused = nn.Parameter(torch.randn(2))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.matmul(self.left, x)
        y = torch.einsum("btd,de->bte", y, self.mix) + self.bias
        y = y * torch.sigmoid(self.gate) / self.temperature.exp()
        return torch.where(y > 0, y, self.temperature * y)


def free_parameters(draw: Draw) -> Problem:
    t = draw(2, 5)
    return nn.Sequential(FreeParameters(t), Head()), torch.randn(N, t, 4)


class Broadcast(nn.Module):
    """Sums, differences, products and quotients with parameters that broadcast, either way round."""

    def __init__(self, t: int) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(t, 1)), nn.Parameter(torch.randn(4))
        self.c, self.d = nn.Parameter(torch.randn(1, t, 4)), nn.Parameter(torch.rand(()) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.c - (self.a + x - self.b) * self.c) / self.d


def broadcast(draw: Draw) -> Problem:
    t = draw(1, 5)
    return nn.Sequential(Broadcast(t), Head()), torch.randn(N, t, 4)


class Frames(nn.Module):
    """A video: frames folded into the batch, positions before examples in one layer."""

    def __init__(self, major: bool) -> None:
        super().__init__()
        self.major = major
        self.conv, self.norm = nn.Conv2d(2, 3, 3), nn.GroupNorm(1, 3)
        self.linear = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        n, frames = x.shape[:2]
        x = x if self.major else x.transpose(0, 1)
        y = self.norm(self.conv(x.reshape(n * frames, *x.shape[2:]))).mean((2, 3))
        y = torch.tanh(self.linear(y))
        return y.view(n, frames, -1) if self.major else y.view(frames, n, -1).transpose(0, 1)


def frames(draw: Draw) -> Problem:
    return nn.Sequential(Frames(bool(draw(0, 1))), Head()), torch.randn(N, draw(2, 3), 2, 5, 5)


def siamese(draw: Draw) -> Problem:
    class Siamese(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tower = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh())
            self.head = nn.Bilinear(8, 8, CLASSES)

        def forward(self, left: Tensor, right: Tensor) -> Tensor:
            out: Tensor = self.head(self.tower(left), self.tower(right))
            return out

    return Siamese(), (torch.randn(N, 6), torch.randn(N, 6))


def data_dependent(draw: Draw) -> Problem:
    """Another layer for a batch than for one example: nothing but the loop can do this."""

    class Choosy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.many, self.head = nn.Linear(6, 6), nn.Linear(6, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            for row in x:
                x = x + 0 * row.sum()
            out: Tensor = self.head(torch.tanh(self.many(x)))
            return out

    return Choosy(), torch.randn(N, 6)


def scripted(draw: Draw) -> Problem:
    """Its parameters are out of sight of any function mode."""

    class Hidden(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
            ctx.save_for_backward(x, weight)
            return x * weight

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, weight = ctx.saved_tensors
            return grad * weight, (grad * x).sum(0)

    class Opaque(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.head = nn.Parameter(torch.randn(6)), nn.Linear(6, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(Hidden.apply(x, self.weight))
            return out

    return Opaque(), torch.randn(N, 6)


FAST: dict[str, Callable[[Draw], Problem]] = {
    build.__name__: build
    for build in (
        mlp,
        mlp_inplace,
        linear_positions,
        linear_two_leading,
        conv1d,
        conv2d,
        conv2d_small_map,
        conv2d_depthwise,
        conv2d_padding_modes,
        conv3d,
        conv_transpose1d,
        conv_transpose2d,
        batch_norm,
        batch_norm1d,
        group_norm,
        instance_norm,
        layer_norm,
        rms_norm,
        embedding,
        prelu,
        attention,
        cross_attention,
        transformer,
        residual,
        channels_last,
        vision,
        gpt2,
        bert,
        reused,
        tied_linear,
        frozen,
        weight_norm,
        spectral_norm,
        broadcast,
        frames,
    )
}
"""Covered by rules: no warning may be heard."""

SLOW: dict[str, Callable[[Draw], Problem]] = {
    build.__name__: build
    for build in (
        embedding_bag,
        lstm,
        gru,
        free_parameters,
        siamese,
        data_dependent,
        scripted,
    )
}
"""Part of the model falls back, and says so."""
