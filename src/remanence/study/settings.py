"""The settings of a study, once its file, its preset and the overrides have been put together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from remanence.errors import InputError, UnknownNameError
from remanence.forgetting import BAND_NAMES
from remanence.storage.table_reading import read_into
from remanence.study.validation import at_least, distinct, not_empty, positive, share
from remanence.tasks import DataSource, ModelSource, Recipe, TaskSource
from remanence.theory.sampled_gaussian import check_alpha
from remanence.training.placement import Placement

Subset = Literal["forget", "retain", "test", "train"]
BANDS = ("easiest", *BAND_NAMES[1:-1], "hardest")


@dataclass(frozen=True)
class TrainSection:
    """How every model of the study is trained, and how many checkpoints of its trace are recorded."""

    recipe: Recipe
    record: int = 35
    placement: Placement = "even"

    def __post_init__(self) -> None:
        at_least(1, self, "record")  # scores, and so forget sets, come from the trace


@dataclass(frozen=True)
class ScoreSection:
    """How examples are scored.

    Args:
        alpha: order of the privacy loss.
        sigma: noise to assume where none was added.
        proxies: the other scores that the figure compares.
        sigmas: several noise levels, where the figure compares them.
    """

    alpha: float = 8.0
    sigma: float = 0.1
    proxies: tuple[str, ...] = ()
    sigmas: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        positive(self, "sigma", "sigmas")
        distinct(self, "proxies", "sigmas")


@dataclass(frozen=True)
class ForgetSection:
    """Which forget sets: bands of the privacy loss, of each size.

    Args:
        sizes: examples per set; below 1, a share of the training examples.
        bands: which of the five.
        seed: the training run whose scores choose the sets; by default the first.
        per_seed: instead, every training run chooses the sets that are unlearned from it by its own scores.
    """

    sizes: tuple[float, ...] = (0.1,)
    bands: tuple[str, ...] = BANDS
    seed: int | None = None
    per_seed: bool = False

    def __post_init__(self) -> None:
        not_empty(self, "sizes")
        positive(self, "sizes")
        distinct(self, "sizes", "bands")
        for band in self.bands:
            if band not in BANDS:
                raise UnknownNameError("band", band, BANDS)


@dataclass(frozen=True)
class MethodSection:
    """What differs for one unlearning method; None leaves the study's own setting.

    Args:
        epochs: passes over the retain set.
        every: epochs between two measurements.
        learning_rates: those to choose from.
        noise: standard deviation of the noise of `noisy_finetune`, where training had none.
    """

    epochs: int | None = None
    every: float | None = None
    learning_rates: tuple[float, ...] = ()
    noise: float | None = None

    def __post_init__(self) -> None:
        positive(self, "learning_rates")
        positive(self, *(name for name in ("epochs", "every", "noise") if getattr(self, name) is not None))


@dataclass(frozen=True)
class UnlearnSection:
    """How forget sets are unlearned.

    Args:
        methods: names of unlearning methods.
        epochs: passes over the retain set.
        schedule: learning rate schedule of unlearning: `constant`, or `linear` or `cosine` down to zero.
        every: epochs between two measurements.
        first_every: optimizer steps between two measurements at first; 0 for `every` epochs from the start.
        first_epochs: how long the dense measurements last, in epochs.
        sample: measure on at most this many retain and test examples, on all when 0; the forget set is always whole.
        learning_rate: used when it is not tuned.
        options: further hyperparameters, one table per method.
        per_method: length, measurements, learning rates or noise of single methods, one table per method.
        references: those of `methods` that are shown for comparison; the claim is not about them.
    """

    methods: tuple[str, ...] = ("finetune",)
    epochs: int = 25
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    every: float = 1.0
    first_every: int = 0
    first_epochs: float = 1.0
    sample: int = 0
    learning_rate: float = 0.01
    options: Mapping[str, Any] = field(default_factory=dict)
    per_method: Mapping[str, Any] = field(default_factory=dict)
    references: tuple[str, ...] = ()

    def of(self, method: str) -> MethodSection:
        """What differs for this method."""
        return read_into(MethodSection, self.per_method.get(method, {}), f"unlearn.per_method.{method}")

    def __post_init__(self) -> None:
        not_empty(self, "methods")
        distinct(self, "methods")
        if not set(self.references) < set(self.methods):
            raise InputError(
                f"`references` must be some of `methods` ({', '.join(self.methods)}), not all; "
                f"got {', '.join(self.references)}."
            )
        positive(self, "every", "first_epochs", "learning_rate", "epochs")
        at_least(0, self, "sample", "first_every")
        for method, options in self.options.items():
            if not isinstance(options, Mapping):
                raise InputError(f"`options.{method}` must be a table; got {options!r}.")


@dataclass(frozen=True)
class TuneSection:
    """How the learning rate of unlearning is chosen: on a random forget set, of these values.

    Args:
        learning_rates: those to try; if empty, `unlearn.learning_rate` is used.
        epochs: length of each attempt.
        size: size of the random forget set, as in `forget.sizes`.
        seeds: number of training runs on which each is tried.
        first_seed: the first of them; by default the first of the study.
        oracles: models trained without the random set.
        metrics: the metrics whose mean distance to the oracles, on average over the run, is to be small.
        floor: a learning rate with which retain accuracy ends below this is not chosen; if every rate ends below it,
            the rate that ends highest is chosen.
    """

    learning_rates: tuple[float, ...] = ()
    epochs: int = 10
    size: float = 0.1
    seeds: int = 1
    first_seed: int | None = None
    oracles: int = 2
    metrics: tuple[str, ...] = ("mia_confidence", "test")
    floor: float = 0.0

    def __post_init__(self) -> None:
        positive(self, "learning_rates", "epochs", "size", "seeds", "oracles")
        distinct(self, "learning_rates", "metrics")
        not_empty(self, "metrics")
        share(self, "floor")


@dataclass(frozen=True)
class AuditSection:
    """How unlearning is judged.

    Args:
        metrics: the metrics that the figure shows.
        oracles: models trained without each forget set.
        tolerance: the distance to the oracles' mean that counts as reached.
        stay: for how many measurements in a row it must hold.
        poison_variance: variance of the noise that `gus` looks for.
        poison_size: examples of each forget set that carry it; all when 0.
        poison_together: train one poisoned model for all forget sets instead of one for each.
        points: points on the line between two models at which the loss is measured.
        subsets: the data on which barriers are measured.
        barrier_examples: at most this many examples of each subset, and of the training data for BatchNorm; all when 0.
    """

    metrics: tuple[str, ...] = ("ua", "mia_confidence")
    oracles: int = 3
    tolerance: float = 0.05
    stay: int = 2
    poison_variance: float = 0.062
    poison_size: int = 0
    poison_together: bool = False
    points: int = 25
    subsets: tuple[Subset, ...] = ("test",)
    barrier_examples: int = 0

    def __post_init__(self) -> None:
        not_empty(self, "metrics", "subsets")
        distinct(self, "metrics", "subsets")
        positive(self, "oracles", "tolerance", "stay", "poison_variance")
        at_least(0, self, "poison_size", "barrier_examples")
        at_least(3, self, "points")  # the ends and one between


@dataclass(frozen=True)
class GateSection:
    """What every base model must fulfil before anything is unlearned. If one does not, the study decides nothing.

    Args:
        train_accuracy: smallest accuracy on the training examples.
        attack: smallest balanced accuracy of a membership attack on training against test examples; one half is chance.
    """

    train_accuracy: float = 0.0
    attack: float = 0.0

    def __post_init__(self) -> None:
        share(self, "train_accuracy", "attack")


@dataclass(frozen=True)
class GroupSection:
    """How group losses are estimated.

    Args:
        estimates: repetitions with other draws.
        moments: checkpoints of training at which gradients are taken.
        batches: mini-batches of D, and as many of D without the forget set, for the independent form.
        size: examples of a forget set whose gradients are taken, at most.
        draws: tuples of mini-batches averaged over.
        sigmas: noise levels to assume.
    """

    estimates: int = 20
    moments: int = 8
    batches: int = 32
    size: int = 200
    draws: int = 1024
    sigmas: tuple[float, ...] = (0.1,)

    def __post_init__(self) -> None:
        not_empty(self, "sigmas")
        positive(self, "estimates", "moments", "size", "draws", "sigmas")
        at_least(2, self, "batches")  # an estimate draws two of them


@dataclass(frozen=True)
class Study:
    """A study, ready to be run.

    Args:
        name: name of its file, without the suffix.
        file: what names it in a command.
        title: title of its page.
        figure: the figure it ends in.
        claim: the claim of the paper, in our words.
        note: why the settings are as they are, for readers of the result; Markdown.
        criterion: how the claims are decided, written before the deciding seeds are run; Markdown.
        seeds: number of training runs, and of unlearning runs from each.
        first_seed: the first of their seeds; the others follow it.
        explored: the seeds below this were looked at while the settings were chosen, and decide nothing.
        noises: levels of SGLD noise in training and unlearning; without any, plain SGD.
        preset: the preset that was chosen.
        device: where to compute on this machine.
    """

    title: str
    figure: str
    claim: str
    train: TrainSection
    name: str = ""
    file: str = ""
    preset: str = ""
    device: str = "auto"
    note: str = ""
    criterion: str = ""
    seeds: int = 3
    first_seed: int = 0
    explored: int = 0
    noises: tuple[float, ...] = ()
    data: DataSource = field(default_factory=DataSource)
    model: ModelSource = field(default_factory=ModelSource)
    score: ScoreSection = field(default_factory=ScoreSection)
    forget: ForgetSection = field(default_factory=ForgetSection)
    unlearn: UnlearnSection = field(default_factory=UnlearnSection)
    tune: TuneSection = field(default_factory=TuneSection)
    audit: AuditSection = field(default_factory=AuditSection)
    gate: GateSection = field(default_factory=GateSection)
    group: GroupSection = field(default_factory=GroupSection)

    def __post_init__(self) -> None:
        at_least(1, self, "seeds")
        at_least(0, self, "first_seed", "explored")
        distinct(self, "noises")

    @property
    def seed_numbers(self) -> range:
        """The seeds of the training runs."""
        return range(self.first_seed, self.first_seed + self.seeds)

    @property
    def scoring_seed(self) -> int:
        """The training run whose scores choose forget sets that all runs share."""
        return self.first_seed if self.forget.seed is None else self.forget.seed

    @property
    def tuning_seeds(self) -> range:
        """The training runs on which the learning rate of unlearning is chosen."""
        first = self.first_seed if self.tune.first_seed is None else self.tune.first_seed
        return range(first, first + self.tune.seeds)

    @property
    def task(self) -> TaskSource:
        """The task that the study is about, tied to the data there are now."""
        return TaskSource(self.data.digested(), self.model, self.train.recipe, device=self.device)

    def with_noise(self, noise: float) -> Study:
        """The same study with SGLD in place of SGD."""
        recipe = replace(self.train.recipe, noise=noise)
        return replace(self, train=replace(self.train, recipe=recipe))


_RECIPE = tuple(f.name for f in fields(Recipe))


def study_from(table: Mapping[str, Any]) -> Study:
    """A study from the table that its file, preset and overrides make."""
    values = dict(table)
    for part, gather in (("train", _gather_recipe), ("model", _gather_options)):
        if isinstance(values.get(part), Mapping):
            values[part] = gather(values[part])
    return read_into(Study, values)


def _gather_recipe(table: Mapping[str, Any]) -> dict[str, Any]:
    """[train] holds the recipe's keys beside its own."""
    plain = dict(table)
    recipe = {key: plain.pop(key) for key in list(plain) if key in _RECIPE}
    own = {f.name for f in fields(TrainSection)} - {"recipe"}
    if unknown := [key for key in plain if key not in own]:
        known = [f"train.{key}" for key in (*_RECIPE, "lr", *own)]
        raise UnknownNameError("setting", f"train.{unknown[0]}", known)
    return {**plain, "recipe": recipe}


def _gather_options(table: Mapping[str, Any]) -> dict[str, Any]:
    """[model] holds `name`; all else goes to the function that makes the model, which checks it."""
    return {"options": {key: value for key, value in table.items() if key != "name"}} | (
        {"name": table["name"]} if "name" in table else {}
    )
