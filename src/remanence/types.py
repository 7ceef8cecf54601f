"""The types that rooms hand to each other: frozen, validated once, arrays read-only, no torch."""

from __future__ import annotations

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
"""Stable names of examples: int64 or text, unique, never positions."""

Reduction = Literal["mean", "sum"]
Sampling = Literal["poisson", "shuffled"]
Denominator = Literal["fixed", "random"]


class Status(StrEnum):
    """What a number is worth. No bound is ever shown without one."""

    CERTIFICATE = "certificate"
    """Proved for the mechanism that really ran."""
    ESTIMATE = "estimate"
    """A theorem's quantity, estimated from samples or from checkpoints; may fall short of the bound."""
    HEURISTIC = "heuristic"
    """The theorem does not apply (no real noise, say); the number ranks, it does not bound."""
    VACUOUS = "vacuous"
    """A bound so large that it says nothing."""


def as_ids(values: ArrayLike, *, what: str = "ids") -> Ids:
    """A read-only, one-dimensional, duplicate-free id array of int64 or text."""
    ids = np.asarray(values)
    if ids.ndim != 1:
        raise DataError(f"`{what}` must be one-dimensional; got shape {ids.shape}.")
    if ids.size == 0 or ids.dtype.kind in "iu":
        ids = ids.astype(np.int64)
    elif ids.dtype.kind not in "U":
        raise DataError(f"`{what}` must be whole numbers or text; got {ids.dtype}.")
    unique, counts = np.unique(ids, return_counts=True)
    if unique.size != ids.size:
        raise DataError(f"`{what}` must be unique; {unique[counts > 1][0]!r} occurs {counts.max()} times.")
    return _frozen(ids)


def positions_of(wanted: Ids, ids: Ids, *, what: str = "the data") -> NDArray[np.int64]:
    """Where each wanted id stands in `ids`; unknown ones are an error that names the first."""
    if len(wanted) and wanted.dtype.kind != ids.dtype.kind:
        kinds = {"i": "whole numbers", "U": "text"}
        raise DataError(f"Ids of {what} are {kinds[ids.dtype.kind]}; got {kinds[wanted.dtype.kind]}.")
    order = np.argsort(ids, kind="stable")
    slots = np.searchsorted(ids[order], wanted)
    found = order[np.minimum(slots, len(ids) - 1)] if len(ids) else np.zeros(len(wanted), np.int64)
    unknown = ids[found] != wanted if len(ids) else np.ones(len(wanted), bool)
    if unknown.any():
        first = wanted[unknown][0]
        raise DataError(f"{int(unknown.sum())} of {len(wanted)} ids are not in {what}; the first is {first}.")
    return found.astype(np.int64)


@dataclass(frozen=True)
class Mechanism:
    """All that accounting needs to know of how a model was trained.

    Args:
        sigma: standard deviation of the Gaussian noise added to each coordinate of the mini-batch gradient,
            on the scale that `reduction` gives it.
        sampling_rate: the probability that a step uses an example, batch size over data set size.
        steps: optimizer steps taken, T.
        batch_size: the denominator B of the mini-batch mean.
        reduction: whether the noise sits on the mini-batch *mean* (the default in torch) or *sum*.
        sampling: `poisson` draws every example independently at every step; `shuffled` walks through epochs.
        denominator: `fixed` divides by B whatever the batch's size, `random` by the number drawn.
        assumed: the noise was not really added (plain SGD); what follows is then at most a heuristic.
        max_norm: a bound on one example's gradient norm that holds for every weight vector (clipping,
            a Lipschitz constant), None where there is none. The largest norm seen is not one.
        couples_examples: one example changes another's gradient (BatchNorm in training mode).
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
        check_choice("reduction", self.reduction, ("mean", "sum"))
        check_choice("sampling", self.sampling, ("poisson", "shuffled"))
        check_choice("denominator", self.denominator, ("fixed", "random"))


@dataclass(frozen=True, eq=False)
class NormTrace:
    """What training left behind of each example: the only bridge from torch to the theory.

    Args:
        ids: the n examples.
        steps: the N recorded moments, as optimizer steps already taken (0 is the initial model), increasing.
        norms: [N, n] Euclidean norm of each example's loss gradient.
        confidence: [N, n] softmax probability of the true class, where recorded.
        error: [N, n] distance between softmax and one-hot label (EL2N), where recorded.
        mechanism: how training went.
        moments: [N, n] the step at which each example was seen, where rows were not taken at one moment
            (norms in flight: row i is epoch i, an example's norm is from the step that used it).
        provenance: free-form facts worth keeping (data hash, seed, versions).
    """

    ids: Ids
    steps: NDArray[np.int64]
    norms: NDArray[np.floating[Any]]
    mechanism: Mechanism
    confidence: NDArray[np.floating[Any]] | None = None
    error: NDArray[np.floating[Any]] | None = None
    moments: NDArray[np.int64] | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ids = as_ids(self.ids)
        steps = np.asarray(self.steps)
        if steps.ndim != 1 or steps.size == 0 or steps.dtype.kind not in "iu":
            raise InputError(f"`steps` must be a non-empty row of whole numbers; got {self.steps!r}.")
        if steps[0] < 0 or np.any(np.diff(steps) <= 0):
            raise InputError(f"`steps` must increase from 0 or above; got {steps.tolist()}.")
        object.__setattr__(self, "ids", ids)
        object.__setattr__(self, "steps", _frozen(steps.astype(np.int64)))
        for name in ("norms", "confidence", "error", "moments"):
            values = getattr(self, name)
            if values is None:
                continue
            values = np.asarray(values)
            if values.shape != (steps.size, ids.size):
                raise InputError(
                    f"`{name}` must have one row a checkpoint and one column an example, "
                    f"{(steps.size, ids.size)}; got {values.shape}."
                )
            bad = ~(np.isfinite(values) & (values >= 0))
            if bad.any():
                row, column = np.argwhere(bad)[0]
                raise InputError(
                    f"`{name}` must be finite and not negative; got {values[row, column]} "
                    f"for id {ids[column]} at step {steps[row]}."
                )
            object.__setattr__(self, name, _frozen(values))
        object.__setattr__(self, "provenance", MappingProxyType(dict(self.provenance)))

    def plot(self, ids: ArrayLike = (), *, ax: Axes | None = None) -> Axes:
        """Draw the norms over training: their spread over all examples, and the examples named by `ids`.

        Args:
            ids: examples to draw one by one.
            ax: where; new axes by default.
        """
        from remanence.display.plots import draw_norms, on_axes

        wanted = as_ids(ids)
        columns = positions_of(wanted, self.ids, what="the trace")
        named = {str(each): self.norms[:, place] for each, place in zip(wanted, columns, strict=True)}
        return on_axes(lambda axes: draw_norms(axes, self.steps, self.norms, named), ax)

    def _repr_html_(self) -> str:
        from remanence.display.notebook_cards import trace_card

        return trace_card(self.ids, self.steps, self.norms, vars(self.mechanism), self._recorded())

    def _recorded(self) -> list[str]:
        names = ("norms", "confidence", "error")
        return [name for name in names if getattr(self, name) is not None]


@dataclass(frozen=True, eq=False)
class Scores:
    """One number an example, with its name, its parameters, and what it is worth."""

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
            raise InputError(f"`values` must match ids, {ids.shape}; got {values.shape}.")
        object.__setattr__(self, "ids", ids)
        object.__setattr__(self, "values", _frozen(values))
        object.__setattr__(self, "params", MappingProxyType(dict(self.params)))

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw how many examples have which score; on new axes by default."""
        from remanence.display.plots import draw_scores, on_axes

        return on_axes(lambda axes: draw_scores(axes, self.name, self.values), ax)

    def _repr_html_(self) -> str:
        from remanence.display.notebook_cards import scores_card

        return scores_card(self.name, self.ids, self.values, self.params, self.status, self.reasons)


@dataclass(frozen=True, eq=False)
class ForgetSet:
    """Who goes: a named set of ids and where it came from."""

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
    """A number that claims to bound something, and on what grounds.

    Args:
        value: the bound, infinite where nothing can be said.
        status: what it is worth.
        assumptions: what must hold for that, or why it falls short, as sentences.
        formula: the name of the result it comes from.
    """

    value: float
    status: Status
    assumptions: tuple[str, ...] = ()
    formula: str = ""


@dataclass(frozen=True)
class Measurement:
    """One tidy row: a metric on a subset, at a step of a seeded run."""

    metric: str
    subset: str
    value: float
    step: int
    seed: int


def check_positive(name: str, value: float) -> None:
    """Refuse anything but a finite number above zero."""
    if not (np.isfinite(value) and value > 0):
        raise InputError(f"`{name}` must be a finite number above 0; got {value}.")


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Refuse a word outside its short list."""
    if value not in allowed:
        raise InputError(f"`{name}` must be one of {', '.join(allowed)}; got {value!r}.")


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    """A read-only array that shares nothing writable with the caller."""
    if array.flags.writeable:
        array = array.copy()
        array.flags.writeable = False
    return array
