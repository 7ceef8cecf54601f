"""ResNet-18 for small images: a 3x3 stem, no first pooling."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from remanence.types import check_choice

Norm = Literal["batch", "group"]


def _norm(kind: Norm, channels: int) -> nn.Module:
    if kind == "batch":
        return nn.BatchNorm2d(channels)
    # at least eight channels per group: with fewer, the statistics are noisy at small widths
    return nn.GroupNorm(min(32, max(1, channels // 8)), channels)


class Block(nn.Module):
    """A residual block of two convolutions."""

    def __init__(self, channels_in: int, channels: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.norm1 = _norm(norm, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = _norm(norm, channels)
        self.relu1, self.relu2 = nn.ReLU(), nn.ReLU()
        self.shortcut = nn.Sequential()
        if stride != 1 or channels_in != channels:
            conv = nn.Conv2d(channels_in, channels, 1, stride, bias=False)
            self.shortcut = nn.Sequential(conv, _norm(norm, channels))

    def forward(self, x: Tensor) -> Tensor:
        residual = self.norm2(self.conv2(self.relu1(self.norm1(self.conv1(x)))))
        out: Tensor = self.relu2(residual + self.shortcut(x))
        return out


class ResNet18(nn.Module):
    """Four stages of two residual blocks, then average pooling and a linear layer."""

    def __init__(self, width: int, norm: Norm, num_classes: int, in_channels: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(in_channels, width, 3, padding=1, bias=False)
        self.norm, self.relu = _norm(norm, width), nn.ReLU()
        stages, n_in = [], width
        for channels, stride in ((width, 1), (2 * width, 2), (4 * width, 2), (8 * width, 2)):
            stages.append(
                nn.Sequential(Block(n_in, channels, stride, norm), Block(channels, channels, 1, norm))
            )
            n_in = channels
        self.stages = nn.Sequential(*stages)
        self.pool, self.flatten = nn.AdaptiveAvgPool2d(1), nn.Flatten()
        self.head = nn.Linear(n_in, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        features = self.stages(self.relu(self.norm(self.stem(x))))
        logits: Tensor = self.head(self.flatten(self.pool(features)))
        return logits


def resnet18(width: int = 64, norm: Norm = "batch", num_classes: int = 10, in_channels: int = 3) -> ResNet18:
    """ResNet-18 for small images; 11,173,962 parameters at width 64 with ten classes.

    Args:
        width: channels of the first stage.
        norm: normalization layers, `batch` or `group`.
        num_classes: number of classes.
        in_channels: channels of the images.
    """
    check_choice("norm", norm, ("batch", "group"))
    return ResNet18(width, norm, num_classes, in_channels)
