"""Put one model's hidden units where another's are."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from remanence.audit.permutations.activations import match_activations
from remanence.audit.permutations.symmetry import Permutations, Symmetry, permuted
from remanence.audit.permutations.tracing import trace_symmetry
from remanence.audit.permutations.weights import Weights, match_weights
from remanence.errors import InputError, NumericalError
from remanence.gradients.evaluation_mode import evaluating
from remanence.types import check_choice

Match = Literal["weights", "activations"]
TOLERANCE = 1e-4
"""How far the aligned copy's outputs may be off, over the largest: rounding, since sums run in another order."""


def match_permutations(
    reference: nn.Module,
    model: nn.Module,
    example_input: Tensor,
    *,
    by: Match = "weights",
    orders: int = 3,
    seed: int = 0,
) -> nn.Module:
    """A copy of `model` with its hidden units in the places of the units of `reference` that they are most like.

    The copy computes the same function: its outputs on `example_input` are compared with the model's, and a difference
    beyond rounding is an error. Which units may change places is found by following `model` through one pass; nothing
    has to be declared. Channels of a GroupNorm move with their group or within it; heads of attention as a whole, and
    units within a head (queries and keys together, values and the output's inputs together).

    Args:
        reference: stays as it is.
        model: of the same shapes.
        example_input: a batch that both take. For `activations`, the examples whose answers are compared.
        by: `weights`, closest in weight space; or `activations`, most alike in what units answer.
        orders: for weights, how many random orders of the descent to try.
        seed: of these orders.
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
    """Refuse models that are not of one architecture."""
    shapes = [{name: tuple(tensor.shape) for name, tensor in each.state_dict().items()} for each in (a, b)]
    if shapes[0] == shapes[1]:
        return
    for name in (*shapes[0], *shapes[1]):
        ours, theirs = (each.get(name, "nothing") for each in shapes)
        if ours != theirs:
            raise InputError(
                f"Both models must have the same weights; {name} is {ours} in one and {theirs} in the other."
            )


def _weights(reference: nn.Module, model: nn.Module, symmetry: Symmetry) -> Weights:
    ours, theirs = (
        {
            name: tensor.detach().double().cpu()
            for name, tensor in each.named_parameters()
            if name in symmetry.layouts
        }
        for each in (reference, model)
    )
    return Weights(ours, theirs, symmetry)


def _checked(model: nn.Module, symmetry: Symmetry, chosen: Permutations, example_input: Tensor) -> nn.Module:
    aligned = permuted(model, symmetry, chosen)
    with torch.no_grad(), evaluating(model), evaluating(aligned):
        before, after = model(example_input), aligned(example_input)
    if not torch.isfinite(before).all():
        raise NumericalError("The model's outputs are not finite; there is nothing to match.")
    off = float((after - before).abs().max() / before.abs().max().clamp_min(1))
    if off > TOLERANCE:
        raise InputError(
            f"The model could not be followed: permuting its units changed its outputs by {off:.2g} of the largest, "
            "so it has a symmetry that was misread. Please report the model."
        )
    return aligned
