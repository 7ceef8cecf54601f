"""Harm of unlearning to the examples that stay: the change of their loss since before unlearning."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from remanence.audit.evaluation import Evaluation
from remanence.errors import InputError
from remanence.types import Ids

Floats = NDArray[np.float64]


def harm(evaluation: Evaluation) -> float:
    """Mean change of the loss of the retained examples; above 0, they are served worse than before."""
    return float(_changes(evaluation).mean())


def harm_worst_class(evaluation: Evaluation) -> float:
    """The same mean in the class where it is largest."""
    labels = evaluation.retain.labels.numpy()
    if not len(labels):
        raise InputError("The worst class needs classes; the outputs of this task are not classes.")
    return _worst(_changes(evaluation), labels)


def harm_worst_person(evaluation: Evaluation) -> float:
    """The same mean for the person for whom it is largest.

    The largest of many means is above 0 by chance alone. It is read beside the same value of the oracles.

    Source: Hayes et al., "Inexact Unlearning Needs More Careful Evaluations to Avoid a False Sense of Privacy", arXiv
    2403.01218, who find that unlearning some examples can worsen the privacy of others.

    Departs: the paper attacks the retained examples with per-example shadow models; here the loss is compared, which
    needs no further model and shows the harm that those who stay can feel.
    """
    people, before = evaluation.context.people, evaluation.context.before
    if people is None or before is None or evaluation.split is None:
        raise InputError("The worst person needs to know whose the examples are; pass `people`.")
    ids = evaluation.split.retain.ids
    # the same for every model that is compared with this one
    rows, person = before.once(f"people {id(people)}", lambda _: _owned(ids, people))
    return _worst(_changes(evaluation)[rows], person)


def _owned(ids: Ids, people: Mapping[int | str, str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions of the examples whose person is known, and the number of that person."""
    owners = [(row, people[example]) for row, example in enumerate(ids.tolist()) if example in people]
    if not owners:
        raise InputError("Expected retained examples with a person in `people`; none of them has one.")
    rows, names = zip(*owners, strict=True)
    return np.array(rows), np.unique(names, return_inverse=True)[1]


def _changes(evaluation: Evaluation) -> Floats:
    before = evaluation.context.before
    if before is None:
        raise InputError("Harm needs an evaluation of the model before unlearning, on the same data.")
    if before.retain.loss.shape != evaluation.retain.loss.shape:
        raise InputError("Expected the model before unlearning on the same retained examples; got others.")
    return np.asarray((evaluation.retain.loss - before.retain.loss).double().numpy())


def _worst(changes: Floats, group: NDArray[np.int64]) -> float:
    """The largest mean of a group; groups are numbers."""
    counts = np.bincount(group)
    return float((np.bincount(group, weights=changes)[counts > 0] / counts[counts > 0]).max())
