"""Output units of layers: channels of convolutions, units of linear layers, heads of attention."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from remanence.errors import InputError
from remanence.unlearning.set_gradient import largest

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_HEADS = ("num_heads", "num_attention_heads", "n_heads", "heads", "n_head")
"""Attributes in which attention modules keep their number of heads."""
_PROJECTIONS = ("query", "key", "value", "q_proj", "k_proj", "v_proj", "q", "k", "v", "to_q", "to_k", "to_v")
_JOINT_PROJECTIONS = ("qkv", "to_qkv", "in_proj")


@dataclass(frozen=True, eq=False)
class Layer:
    """The output units of a layer.

    Args:
        name: name of the layer.
        rows: [units, rows per unit] rows of each parameter, by name, that belong to each unit.
    """

    name: str
    rows: Mapping[str, Tensor]

    @property
    def units(self) -> int:
        return len(next(iter(self.rows.values())))

    def scores(self, parameters: Mapping[str, Tensor], gradient: Mapping[str, Tensor]) -> Tensor:
        """Σ|θ·∂L/∂θ| over the weights of each unit."""
        total = torch.zeros(self.units, device=next(iter(gradient.values())).device)
        for name, rows in self.rows.items():
            sizes = (
                (parameters[name].detach() * gradient[name]).abs().reshape(len(gradient[name]), -1).sum(dim=1)
            )
            total += sizes[rows.to(sizes.device)].sum(dim=1)
        return total


def layers_with_units(model: nn.Module) -> list[Layer]:
    """The layers whose output units can be reset, in the order in which the model registers them.

    The last one, which gives the model's outputs, is left out unless it is the only one. Modules that keep their number
    of heads in an attribute such as `num_heads` are attention; the rows of their queries, keys and values that belong
    to a head are one unit.
    """
    trainable = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    layers = [layer for layer in _layers(model) if all(name in trainable for name in layer.rows)]
    if not layers:
        raise InputError(
            "Expected a model with trainable convolutions, linear layers or attention, whose output units can be "
            f"reset; got {_looked_at(model)}."
        )
    return layers[:-1] or layers


def has_units(model: nn.Module) -> bool:
    """Whether `layers_with_units` finds any."""
    try:
        return bool(layers_with_units(model))
    except InputError:
        return False


def chosen_rows(
    layers: list[Layer], parameters: Mapping[str, Tensor], gradient: Mapping[str, Tensor], fraction: float
) -> dict[str, Tensor]:
    """Rows of each parameter that belong to the units with the highest scores, a fraction of each layer."""
    chosen = {}
    for layer in layers:
        units = largest(layer.scores(parameters, gradient), fraction).cpu()
        chosen.update({name: rows[units].flatten() for name, rows in layer.rows.items()})
    return chosen


def _layers(model: nn.Module) -> Iterator[Layer]:
    in_heads: set[str] = set()
    for name, module in model.named_modules():
        prefix = f"{name}." if name else ""
        if isinstance(module, nn.MultiheadAttention):
            yield Layer(name, _torch_heads(prefix, module))
        elif heads := _number_of_heads(module):
            by_head = _projection_heads(prefix, module, heads)
            in_heads.update(parameter.rpartition(".")[0] for parameter in by_head)
            if by_head:
                yield Layer(name, by_head)
        if isinstance(module, (*_CONVOLUTIONS, nn.Linear)) and name not in in_heads:
            each_row = torch.arange(len(module.weight))[:, None]
            yield Layer(name, {f"{prefix}{key}": each_row for key in _weight_and_bias(module)})


def _weight_and_bias(module: nn.Module) -> tuple[str, ...]:
    return ("weight", "bias") if module.bias is not None else ("weight",)


def _number_of_heads(module: nn.Module) -> int:
    numbers = (getattr(module, name, None) for name in _HEADS)
    return next((number for number in numbers if isinstance(number, int) and number > 0), 0)


def _projection_heads(prefix: str, module: nn.Module, heads: int) -> dict[str, Tensor]:
    """Rows of the projections of an attention module, by head."""
    rows = {}
    for name, child in module.named_children():
        parts = 1 if name in _PROJECTIONS else 3 if name in _JOINT_PROJECTIONS else 0
        if parts and isinstance(child, nn.Linear) and child.out_features % (parts * heads) == 0:
            by_head = _rows_by_head(child.out_features, heads, parts)
            rows.update({f"{prefix}{name}.{key}": by_head for key in _weight_and_bias(child)})
    return rows


def _torch_heads(prefix: str, module: nn.MultiheadAttention) -> dict[str, Tensor]:
    """Rows of torch's own attention, which keeps its projections in one parameter or in three."""
    rows = {}
    for name, parameter in module.named_parameters(recurse=False):
        parts = 3 if name.startswith("in_proj") else 1
        if parameter.shape[0] == parts * module.embed_dim:
            rows[f"{prefix}{name}"] = _rows_by_head(parameter.shape[0], module.num_heads, parts)
    return rows


def _rows_by_head(total: int, heads: int, parts: int) -> Tensor:
    """[heads, rows per head] of a parameter with queries, keys and values one after the other."""
    return torch.arange(total).view(parts, heads, -1).transpose(0, 1).reshape(heads, -1)


def _looked_at(model: nn.Module) -> str:
    """The layers with parameters, for an error message."""
    parameters = (
        f"{name or 'the model'} ({type(module).__name__}"
        f"{'' if any(p.requires_grad for p in module.parameters(recurse=False)) else ', not trainable'})"
        for name, module in model.named_modules()
        if any(True for _ in module.parameters(recurse=False))
    )
    return ", ".join(parameters) or "a model without parameters"
