"""The data types of the whole package: immutable, validated on creation, without torch."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from remanence.errors import DataError, InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Ids = NDArray[np.int64] | NDArray[np.str_]
"""Unique, stable ids of examples: int64 or text."""

Reduction = Literal["mean", "sum"]
Sampling = Literal["poisson", "shuffled"]
Denominator = Literal["fixed", "random"]


class Status(StrEnum):
    """How much a number guarantees. Every bound has a status."""

    CERTIFICATE = "certificate"
    """Proved for the mechanism that was used."""
    ESTIMATE = "estimate"
    """An estimate, from samples or checkpoints, of a quantity in a theorem; may be below the true bound."""
    HEURISTIC = "heuristic"
    """The theorem does not apply (for example, training added no noise): useful to rank, not a bound."""
    VACUOUS = "vacuous"
    """A bound too large to be useful."""


def as_ids(values: ArrayLike, *, what: str = "ids") -> Ids:
    """Convert ids to a read-only array of int64 or text; duplicates are an error.

    Args:
        values: the ids.
        what: name of the argument in error messages.
    """
    ids = np.asarray(values)
    if ids.ndim != 1:
        raise DataError(f"`{what}` must be one-dimensional; got shape {ids.shape}.")
    if ids.size == 0 or ids.dtype.kind in "iu":
        ids = ids.astype(np.int64)
    elif ids.dtype.kind not in "U":
        raise DataError(f"`{what}` must be whole numbers or text; got {ids.dtype}.")
    unique, counts = np.unique(ids, return_counts=True)
    if unique.size != ids.size:
        raise DataError(
            f"`{what}` must be unique; {unique[counts > 1][0].item()!r} occurs {counts.max()} times."
        )
    return _frozen(ids)


def positions_of(wanted: Ids, ids: Ids, *, what: str = "the data") -> NDArray[np.int64]:
    """Positions of the wanted ids in `ids`; unknown ids are an error."""
    if len(wanted) and wanted.dtype.kind != ids.dtype.kind:
        kinds = {"i": "whole numbers", "U": "text"}
        raise DataError(f"Ids of {what} are {kinds[ids.dtype.kind]}; got {kinds[wanted.dtype.kind]}.")
    order = np.argsort(ids, kind="stable")
    ranks = np.searchsorted(ids[order], wanted)
    positions = order[np.minimum(ranks, len(ids) - 1)] if len(ids) else np.zeros(len(wanted), np.int64)
    unknown = ids[positions] != wanted if len(ids) else np.ones(len(wanted), bool)
    if unknown.any():
        first = wanted[unknown][0]
        raise DataError(f"{int(unknown.sum())} of {len(wanted)} ids are not in {what}; the first is {first}.")
    return positions.astype(np.int64)


@dataclass(frozen=True)
class Mechanism:
    """How a model was trained, as far as privacy accounting needs it.

    Args:
        sigma: standard deviation of the Gaussian noise added to each coordinate of the mini-batch gradient,
            on the scale of `reduction`.
        sampling_rate: probability that a step uses an example: batch size / number of examples.
        steps: number of optimizer steps, T.
        batch_size: the denominator B of the mini-batch mean.
        reduction: whether the noise is added to the mini-batch *mean* (the default in torch) or *sum*.
        sampling: `poisson` draws every example independently at every step; `shuffled` uses every example once per
            epoch, in random order.
        denominator: `fixed` divides by B, `random` by the actual size of the batch.
        assumed: the noise was not added in training (plain SGD); results are then at most heuristics.
        max_norm: a bound on the gradient norm of an example that holds for all weights (from clipping or a
            Lipschitz constant), or None. The largest recorded norm is no such bound.
        clipped: training clips the gradient of every example to `max_norm`; recorded norms, which are taken before
            clipping, may then be larger.
        couples_examples: the gradient of an example depends on others in its batch (BatchNorm in training mode).
        departures: what else is known of the training that no theorem covers, as sentences.
    """

    sigma: float
    sampling_rate: float
    steps: int
    batch_size: float
    reduction: Reduction = "mean"
    sampling: Sampling = "shuffled"
    denominator: Denominator = "random"
    assumed: bool = True
    max_norm: float | None = None
    couples_examples: bool = False
    departures: tuple[str, ...] = ()
    clipped: bool = False

    def __post_init__(self) -> None:
        check_positive("sigma", self.sigma)
        if not 0 < self.sampling_rate <= 1:
            raise InputError(
                f"`sampling_rate` must be in (0, 1]; got {self.sampling_rate}. "
                "Did you pass the batch size? Use batch_size / len(train)."
            )
        if self.steps < 1 or int(self.steps) != self.steps:
            raise InputError(f"`steps` must be a whole number of at least 1; got {self.steps}.")
        check_positive("batch_size", self.batch_size)
        if self.max_norm is not None:
            check_positive("max_norm", self.max_norm)
        if self.clipped and self.max_norm is None:
            raise InputError("`max_norm` must be given for training that clips gradients; got None.")
        check_choice("reduction", self.reduction, ("mean", "sum"))
        check_choice("sampling", self.sampling, ("poisson", "shuffled"))
        check_choice("denominator", self.denominator, ("fixed", "random"))


OPTIONAL_COLUMNS = ("confidence", "error", "moments", "measured")
"""Tables of a trace that may be missing; each has one row per checkpoint and one column per example."""


@dataclass(frozen=True, eq=False)
class Trace:
    """Gradient norms of every training example at several checkpoints of training.

    Args:
        ids: ids of the n examples.
        steps: optimizer steps taken at each of the N checkpoints, increasing; 0 is the initial model.
        norms: [N, n] Euclidean norms of the loss gradient of each example.
        mechanism: how the model was trained.
        confidence: [N, n] softmax probability of the true class, if recorded.
        error: [N, n] distance between softmax output and one-hot label (EL2N), if recorded.
        moments: [N, n] step at which each norm was taken, if the examples of a row differ in it (in-flight norms:
            row i is epoch i, and the norm of an example is from the step that used it).
        measured: [N, n] whether each norm was measured; the others were interpolated. None if all were measured.
        provenance: further information as text, such as the digest of the data or the seed.
    """

    ids: Ids
    steps: NDArray[np.int64]
    norms: NDArray[np.floating[Any]]
    mechanism: Mechanism
    confidence: NDArray[np.floating[Any]] | None = None
    error: NDArray[np.floating[Any]] | None = None
    moments: NDArray[np.int64] | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)
    measured: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        ids = as_ids(self.ids)
        steps = np.asarray(self.steps)
        if steps.ndim != 1 or steps.size == 0 or steps.dtype.kind not in "iu":
            raise InputError(f"`steps` must be a non-empty list of whole numbers; got {self.steps!r}.")
        if steps[0] < 0 or np.any(np.diff(steps) <= 0):
            raise InputError(f"`steps` must increase from 0 or above; got {steps.tolist()}.")
        object.__setattr__(self, "ids", ids)
        object.__setattr__(self, "steps", _frozen(steps.astype(np.int64)))
        for name in ("norms", *OPTIONAL_COLUMNS):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, self._check_table(name))
        object.__setattr__(self, "provenance", MappingProxyType(dict(self.provenance)))
        self._check_max_norm()

    @property
    def interpolated(self) -> int:
        """Number of norms that were interpolated, not measured."""
        return 0 if self.measured is None else int(np.size(self.measured) - np.count_nonzero(self.measured))

    def _check_max_norm(self) -> None:
        limit, largest = self.mechanism.max_norm, float(self.norms.max(initial=0.0))
        # norms are recorded in float32: the last digits decide nothing
        if limit is not None and not self.mechanism.clipped and largest > limit * (1 + 1e-5):
            raise InputError(
                f"`max_norm` must bound every gradient norm; got {limit:g}, but a norm of {largest:g} was recorded. "
                "If training clips gradients to `max_norm`, pass clipped=True."
            )

    def _check_table(self, name: str) -> NDArray[Any]:
        values, shape = np.asarray(getattr(self, name)), (self.steps.size, self.ids.size)
        if values.shape != shape:
            raise InputError(
                f"`{name}` must have one row per checkpoint and one column per example, {shape}; "
                f"got {values.shape}."
            )
        bad = ~(np.isfinite(values) & (values >= 0))
        if bad.any():
            row, column = np.argwhere(bad)[0]
            raise InputError(
                f"`{name}` must be finite and not negative; got {values[row, column]} "
                f"for id {self.ids[column]} at step {self.steps[row]}."
            )
        return _frozen(values)

    def plot(self, ids: ArrayLike = (), *, ax: Axes | None = None) -> Axes:
        """Plot the distribution of the norms over training, and the curves of single examples.

        Args:
            ids: examples whose curves to plot.
            ax: axes to plot on; new ones by default.
        """
        from remanence.display.plots import draw_norms, on_axes

        wanted = as_ids(ids)
        columns = positions_of(wanted, self.ids, what="the trace")
        curves = {str(name): self.norms[:, column] for name, column in zip(wanted, columns, strict=True)}
        return on_axes(lambda axes: draw_norms(axes, self.steps, self.norms, curves), ax)

    def _repr_html_(self) -> str:
        from remanence.display.notebook_cards import trace_card

        recorded = [name for name in ("norms", "confidence", "error") if getattr(self, name) is not None]
        return trace_card(self.ids, self.steps, self.norms, vars(self.mechanism), recorded)


@dataclass(frozen=True, eq=False)
class Scores:
    """One number per example.

    Args:
        name: name of the score.
        ids: ids of the examples.
        values: the score of each example.
        params: parameters of the score.
        status: how much the values guarantee.
        reasons: why the status is not better.
    """

    name: str
    ids: Ids
    values: NDArray[np.float64]
    params: Mapping[str, Any] = field(default_factory=dict)
    status: Status = Status.HEURISTIC
    reasons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        ids = as_ids(self.ids)
        values = np.asarray(self.values, dtype=np.float64)
        if values.shape != ids.shape:
            raise InputError(f"`values` must have the shape of `ids`, {ids.shape}; got {values.shape}.")
        object.__setattr__(self, "ids", ids)
        object.__setattr__(self, "values", _frozen(values))
        object.__setattr__(self, "params", MappingProxyType(dict(self.params)))

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Plot a histogram of the scores.

        Args:
            ax: axes to plot on; new ones by default.
        """
        from remanence.display.plots import draw_scores, on_axes

        return on_axes(lambda axes: draw_scores(axes, self.name, self.values), ax)

    def __repr__(self) -> str:
        return f"Scores({self.name!r}, {len(self.ids)} examples, {self.status})"

    def _repr_html_(self) -> str:
        from remanence.display.notebook_cards import scores_card

        return scores_card(self.name, self.ids, self.values, self.params, self.status, self.reasons)


@dataclass(frozen=True, eq=False)
class ForgetSet:
    """Training examples to forget.

    Args:
        name: name of the set.
        ids: ids of the examples; at least one.
        provenance: how the set was selected.
    """

    name: str
    ids: Ids
    provenance: str = ""

    def __post_init__(self) -> None:
        ids = as_ids(self.ids)
        if ids.size == 0:
            raise InputError(f"Forget set {self.name!r} is empty; it must name at least one id.")
        object.__setattr__(self, "ids", ids)


@dataclass(frozen=True)
class Bound:
    """A bound with the assumptions that it rests on.

    Args:
        value: the bound; infinite if there is none.
        status: how much it guarantees.
        assumptions: the assumptions, or the reasons why the status is not better, as sentences.
        formula: name of the theorem or formula.
    """

    value: float
    status: Status
    assumptions: tuple[str, ...] = ()
    formula: str = ""


@dataclass(frozen=True)
class Measurement:
    """The value of a metric on a subset of the data, at one step of a run.

    Args:
        metric: name of the metric.
        subset: `forget`, `retain`, `test` or `train`.
        value: the measured value.
        step: optimizer steps taken.
        seed: random seed of the run.
    """

    metric: str
    subset: str
    value: float
    step: int
    seed: int


def check_positive(name: str, value: float) -> None:
    """Raise InputError unless the value is a finite number above zero."""
    if not 0 < value <= sys.float_info.max:
        raise InputError(f"`{name}` must be a finite number above 0; got {value}.")


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise InputError unless the value is one of the allowed ones."""
    if value not in allowed:
        raise InputError(f"`{name}` must be one of {', '.join(allowed)}; got {value!r}.")


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    """A read-only array; a writable one is copied first."""
    if array.flags.writeable:
        array = array.copy()
        array.flags.writeable = False
    return array
