"""Gaussian unlearning score: is the noise that a forget set was trained with still in the model?"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from remanence.audit.evaluation import Evaluation
from remanence.batches import device_of, moved
from remanence.data import Examples
from remanence.errors import InputError, NumericalError
from remanence.gradients.evaluation_mode import evaluating
from remanence.losses import class_logits
from remanence.tasks.poison import Poison

_BATCH = 128
QUANTILE_99 = 2.58
"""A standard normal number is further from 0 than this in one case of a hundred."""


def gus_scores(model: nn.Module, clean: Examples, noise: Tensor, variance: float) -> NDArray[np.float64]:
    r"""One score per example; independent draws of N(0, 1) when the model has not learned the noise.

    Formula: :math:`I = \langle g, \xi\rangle / (\sigma \lVert g\rVert)` with :math:`g = \nabla_x \ell(w; x, y)` at the
    clean input :math:`x` and :math:`\xi \sim N(0, \sigma^2)` the noise that it was trained with. Training on
    :math:`x + \xi` makes the loss fall along :math:`\xi`, so a model that has learned the noise has negative scores.

    σ² is meant on the scale of the inputs as the network sees them: pixels in [0, 1] for every data set that
    `load_dataset` reads. On standardized pixels the same noise has the variance σ² divided by the pixels' own. The
    score itself has no scale.

    Args:
        model: put in evaluation mode meanwhile.
        clean: the examples without noise.
        noise: [n, *shape of an input], the noise of each example.
        variance: σ².

    Departs from the paper, which leaves out the 1/σ (`gus_printed` is its form). The gradient is computed up
    to a positive factor per example, which cancels in the score, so that it does not vanish where the model is certain.

    Source: the paper, appendix "Evaluation metrics".
    """
    scores = []
    with evaluating(model):
        for rows in torch.split(torch.arange(len(clean)), _BATCH):
            gradient = _direction(model, clean, rows).cpu().double().flatten(1)
            length = gradient.norm(dim=1).clamp_min(torch.finfo(torch.float64).tiny)
            inner = (gradient * noise[rows].double().flatten(1)).sum(dim=1)
            scores.append(inner / (length * math.sqrt(variance)))
    values = np.asarray(torch.cat(scores).numpy())
    if not np.isfinite(values).all():
        raise NumericalError("The model's input gradients must be finite for GUS; they are not.")
    return values


def _direction(model: nn.Module, clean: Examples, rows: Tensor) -> Tensor:
    """The gradient of the loss with respect to the inputs, each row up to a positive factor."""
    inputs, labels = moved(clean.batch(rows), device_of(model))
    inputs = inputs.detach().clone().requires_grad_()
    gradient: Tensor
    with torch.enable_grad():
        outputs = model(inputs)
        logits = class_logits(outputs, labels)
        if logits is None:
            total = clean.readout.losses(outputs, labels, len(rows)).sum()
            [gradient] = torch.autograd.grad(total, inputs)
            return gradient
        # dloss/dlogit is p_k for the others and -(sum of these) for the true class; the sum is divided out
        others = logits.detach().double().scatter(1, labels[:, None], -torch.inf).softmax(dim=1)
        weights = others.scatter(1, labels[:, None], -1.0).to(logits.dtype)
        [gradient] = torch.autograd.grad(logits, inputs, weights)
    return gradient


def gus(evaluation: Evaluation) -> float:
    """GUS: the mean score over the poisoned examples of the forget set."""
    return float(_scores(evaluation).mean())


def gus_z(evaluation: Evaluation) -> float:
    """√m times the mean score: N(0, 1) when the noise is forgotten."""
    scores = _scores(evaluation)
    return float(math.sqrt(len(scores)) * scores.mean())


def gus_printed(evaluation: Evaluation) -> float:
    """GUS as the paper prints it, without the 1/σ: N(0, σ²/m) when forgotten."""
    poison, _ = _poisoned(evaluation)
    return gus(evaluation) * math.sqrt(poison.variance)


def gus_quantile(evaluation: Evaluation) -> float:
    """The 99% quantile of the absolute mean score of a model that has not learned the noise."""
    return QUANTILE_99 / math.sqrt(len(_scores(evaluation)))


def gus_printed_quantile(evaluation: Evaluation) -> float:
    """The same quantile for the paper's form."""
    poison, _ = _poisoned(evaluation)
    return gus_quantile(evaluation) * math.sqrt(poison.variance)


def _scores(evaluation: Evaluation) -> NDArray[np.float64]:
    return evaluation.once("gus", _compute)


def _compute(evaluation: Evaluation) -> NDArray[np.float64]:
    poison, clean = _poisoned(evaluation)
    if evaluation.model is None:
        raise InputError("GUS needs the model, for its gradients; make the evaluation with `evaluate`.")
    row_of = {example: row for row, example in enumerate(poison.ids.tolist())}
    rows = torch.tensor([row_of[example] for example in clean.ids.tolist()])
    return gus_scores(evaluation.model, clean, poison.noise[rows], poison.variance)


def _poisoned(evaluation: Evaluation) -> tuple[Poison, Examples]:
    """The noise, and the clean examples of the forget set that were trained with it."""
    poison, split = evaluation.context.poison, evaluation.split
    if poison is None or evaluation.context.clean is None or split is None:
        raise InputError("GUS needs a run that was trained with poison; this one was not.")
    ids = split.forget.ids[np.isin(split.forget.ids, poison.ids)]
    if not len(ids):
        raise InputError(
            f"GUS needs poisoned examples in the forget set; none of {split.forget_set.name!r} is among the "
            f"{len(poison.ids)} that the run was poisoned with."
        )
    return poison, evaluation.context.clean.take(ids)
