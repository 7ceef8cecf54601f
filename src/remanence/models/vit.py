"""A small vision transformer with a class token, learned position embeddings and pre-norm blocks."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from remanence.errors import InputError


class Attention(nn.Module):
    """Self-attention with separate projections, like the ViT of the package `transformers`."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))
        self.output = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        n, t, dim = x.shape
        q, k, v = (
            project(x).view(n, t, self.heads, dim // self.heads).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(q, k, v)
        out: Tensor = self.output(mixed.transpose(1, 2).reshape(n, t, dim))
        return out


class Layer(nn.Module):
    """A transformer layer: attention and a two-layer perceptron, each with a residual connection."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.norm_before, self.norm_after = nn.LayerNorm(dim, eps=1e-12), nn.LayerNorm(dim, eps=1e-12)
        self.attention = Attention(dim, heads)
        self.widen, self.narrow = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_before(x))
        out: Tensor = x + self.narrow(F.gelu(self.widen(self.norm_after(x))))
        return out


class Embeddings(nn.Module):
    """Patch embeddings and a class token, plus position embeddings: [n, tokens, dim]."""

    def __init__(self, image: int, patch: int, dim: int, in_channels: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(in_channels, dim, patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.positions = nn.Parameter(torch.randn(1, (image // patch) ** 2 + 1, dim) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        return torch.cat([self.class_token.expand(x.shape[0], -1, -1), tokens], 1) + self.positions


class ViT(nn.Module):
    """A vision transformer that classifies by the class token."""

    def __init__(
        self, image: int, patch: int, dim: int, depth: int, heads: int, num_classes: int, in_channels: int
    ) -> None:
        super().__init__()
        self.embeddings = Embeddings(image, patch, dim, in_channels)
        self.layers = nn.Sequential(*(Layer(dim, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim, eps=1e-12)
        self.head = nn.Linear(dim, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(self.layers(self.embeddings(x)))[:, 0])
        return logits


def vit_small(
    depth: int = 6,
    dim: int = 384,
    heads: int = 6,
    patch: int = 4,
    image: int = 32,
    num_classes: int = 10,
    in_channels: int = 3,
) -> ViT:
    """A small vision transformer, with as many parameters as the ViT of `transformers` at the same sizes.

    Args:
        depth: number of layers.
        dim: embedding dimension.
        heads: attention heads; must divide `dim`.
        patch: width of a square patch; must divide `image`.
        image: width of a square image.
        num_classes: number of classes.
        in_channels: channels of the images.
    """
    if image % patch or dim % heads:
        raise InputError(
            f"`patch` must divide `image`, `heads` must divide `dim`; got {patch}, {image}, {heads}, {dim}."
        )
    return ViT(image, patch, dim, depth, heads, num_classes, in_channels)
