"""Match the hidden units of one model to those of another."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from remanence.audit.permutations.activation_matching import match_activations
from remanence.audit.permutations.symmetry import Permutations, Symmetry, permuted
from remanence.audit.permutations.tracing import trace_symmetry
from remanence.audit.permutations.weight_matching import Weights, match_weights
from remanence.errors import InputError, NumericalError
from remanence.gradients.evaluation_mode import evaluating
from remanence.types import check_choice

Match = Literal["weights", "activations"]
TOLERANCE = 1e-4
"""Allowed difference of the outputs, relative to the largest: sums in another order round differently."""


def match_permutations(
    reference: nn.Module,
    model: nn.Module,
    example_input: Tensor,
    *,
    by: Match = "weights",
    orders: int = 3,
    seed: int = 0,
) -> nn.Module:
    """A copy of `model` with its hidden units permuted to match those of `reference`.

    The copy computes the same function: its outputs on `example_input` are compared with the model's, and a difference
    beyond rounding is an error. Which units can be permuted is found by tracing one pass of `model`; nothing has
    to be declared. Channels of a GroupNorm move with their group or within it; heads of attention as a whole, and
    units within a head (queries and keys together, values and the output's inputs together).

    Args:
        reference: the model to match; not changed.
        model: a model with weights of the same shapes; not changed.
        example_input: a batch for both models. For `activations`, the examples on which units are compared.
        by: `weights` to minimize the distance of the weights, or `activations` to maximize the units' correlations.
        orders: for weights, the number of random orders of the descent.
        seed: random seed of these orders.
    """
    check_choice("by", by, ("weights", "activations"))
    check_same_shapes(reference, model)
    symmetry = trace_symmetry(model, example_input)
    if by == "weights":
        chosen = match_weights(_weights(reference, model, symmetry), orders=orders, seed=seed)
    else:
        chosen = match_activations(reference, model, symmetry, example_input)
    return _checked(model, symmetry, chosen, example_input)


def check_same_shapes(a: nn.Module, b: nn.Module) -> None:
    """Raise for models whose weights have different names or shapes."""
    shapes = [{name: tuple(t.shape) for name, t in model.state_dict().items()} for model in (a, b)]
    if shapes[0] == shapes[1]:
        return
    for name in (*shapes[0], *shapes[1]):
        first, second = (shape.get(name, "missing") for shape in shapes)
        if first != second:
            raise InputError(
                f"Both models must have the same weights; {name} is {first} in one and {second} in the other."
            )


def _weights(reference: nn.Module, model: nn.Module, symmetry: Symmetry) -> Weights:
    def doubles(side: nn.Module) -> dict[str, Tensor]:
        parameters = dict(side.named_parameters())
        return {name: p.detach().double().cpu() for name, p in parameters.items() if name in symmetry.layouts}

    return Weights(doubles(reference), doubles(model), symmetry)


def _checked(model: nn.Module, symmetry: Symmetry, chosen: Permutations, example_input: Tensor) -> nn.Module:
    aligned = permuted(model, symmetry, chosen)
    with torch.no_grad(), evaluating(model), evaluating(aligned):
        before, after = model(example_input), aligned(example_input)
    if not torch.isfinite(before).all():
        raise NumericalError("The model's outputs must be finite to match it; they are not finite.")
    difference = float((after - before).abs().max() / before.abs().max().clamp_min(1))
    if difference > TOLERANCE:
        raise InputError(
            f"The model could not be traced: permuting its units changed its outputs by {difference:.2g} of the "
            "largest, so a symmetry was not recognized correctly. Please report the model."
        )
    return aligned
