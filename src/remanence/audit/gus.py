"""Gaussian unlearning score: is the noise that a forget set was trained with still in the model?"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from remanence.audit.evaluation import Evaluation
from remanence.data import Examples
from remanence.errors import InputError, NumericalError
from remanence.gradients.evaluation_mode import evaluating
from remanence.tasks.poison import Poison

_BATCH = 128
BEYOND = 2.58
"""A standard normal number is further from 0 in one case of a hundred."""


def gus_scores(model: nn.Module, clean: Examples, noise: Tensor, variance: float) -> NDArray[np.float64]:
    r"""One score an example; independent draws of N(0, 1) when the model has nothing of the noise.

    Formula: :math:`I = \langle g, \xi\rangle / (\sigma \lVert g\rVert)` with :math:`g = \nabla_x \ell(w; x, y)` at the
    clean input :math:`x` and :math:`\xi \sim N(0, \sigma^2)` the noise that it was trained with. Training on
    :math:`x + \xi` makes the loss fall along :math:`\xi`, so the score of a model that remembers is below zero.

    σ² is meant on the scale of the inputs as the network sees them: pixels in [0, 1] for every data set that
    `load_dataset` reads. On standardized pixels the same noise has the variance σ² divided by the pixels' own. The
    score itself has no scale.

    Args:
        model: in evaluation mode for the time being.
        clean: the examples without noise.
        noise: [n, *shape of an input], the noise of each.
        variance: σ².

    Departs from the paper, which leaves out the 1/σ (`gus_printed` is its form). The gradient is taken of the loss up
    to a positive factor, which the score does not see, such that it does not vanish where the model is certain.

    Source: the paper, appendix "Evaluation metrics".
    """
    scores = []
    with evaluating(model):
        for rows in torch.split(torch.arange(len(clean)), _BATCH):
            gradient = _direction(model, clean.inputs[rows], clean.labels[rows]).double().flatten(1)
            length = gradient.norm(dim=1).clamp_min(torch.finfo(torch.float64).tiny)
            along = (gradient * noise[rows].double().flatten(1)).sum(dim=1)
            scores.append(along / (length * math.sqrt(variance)))
    found = torch.cat(scores).numpy()
    if not np.isfinite(found).all():
        raise NumericalError("The model's input gradients are not finite; GUS of it means nothing.")
    return np.asarray(found)


def _direction(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    """The loss's gradient by the inputs, each row times some positive number."""
    inputs = inputs.detach().clone().requires_grad_()
    with torch.enable_grad():
        logits = model(inputs)
        # dloss/dlogit is p_k for the others and -(sum of these) for the true class; the sum is divided out
        others = logits.detach().double().scatter(1, labels[:, None], -torch.inf).softmax(dim=1)
        weights = others.scatter(1, labels[:, None], -1.0).to(logits.dtype)
        [gradient] = torch.autograd.grad(logits, inputs, weights)
    return gradient


def gus(evaluation: Evaluation) -> float:
    """GUS: the mean score over the poisoned examples of the forget set."""
    return float(_scores(evaluation).mean())


def gus_z(evaluation: Evaluation) -> float:
    """√m times the mean score: N(0, 1) when forgotten, so beyond ±2.58 in one case of a hundred."""
    scores = _scores(evaluation)
    return float(math.sqrt(len(scores)) * scores.mean())


def gus_printed(evaluation: Evaluation) -> float:
    """GUS as the paper prints it, without the 1/σ: N(0, σ²/m) when forgotten."""
    poison, _ = _poisoned(evaluation)
    return gus(evaluation) * math.sqrt(poison.variance)


def noise_of_gus(evaluation: Evaluation) -> float:
    """How far from 0 the mean score of a model without the noise is in one case of a hundred."""
    return BEYOND / math.sqrt(len(_scores(evaluation)))


def noise_of_gus_printed(evaluation: Evaluation) -> float:
    """The same for the paper's form."""
    poison, _ = _poisoned(evaluation)
    return noise_of_gus(evaluation) * math.sqrt(poison.variance)


def _scores(evaluation: Evaluation) -> NDArray[np.float64]:
    return evaluation.once("gus", _compute)


def _compute(evaluation: Evaluation) -> NDArray[np.float64]:
    poison, clean = _poisoned(evaluation)
    if evaluation.model is None:
        raise InputError("GUS needs the model itself, for its gradients; evaluate with `evaluate`.")
    place = {each: i for i, each in enumerate(poison.ids.tolist())}
    rows = torch.tensor([place[each] for each in clean.ids.tolist()])
    return gus_scores(evaluation.model, clean, poison.noise[rows], poison.variance)


def _poisoned(evaluation: Evaluation) -> tuple[Poison, Examples]:
    """The noise, and the clean examples of the forget set that were trained with it."""
    poison, split = evaluation.context.poison, evaluation.split
    if poison is None or evaluation.context.clean is None or split is None:
        raise InputError(
            "GUS needs a run that was trained with poison (`remanence train --poison SET`); this was not."
        )
    ids = split.forget.ids[np.isin(split.forget.ids, poison.ids)]
    if not len(ids):
        raise InputError(
            f"GUS needs poisoned examples in the forget set; none of {split.forget_set.name!r} is among the "
            f"{len(poison.ids)} that the run was poisoned with."
        )
    return poison, evaluation.context.clean.take(ids)
