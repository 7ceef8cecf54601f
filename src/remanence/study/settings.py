"""What a study asks for, once its file, its preset and the command line have been put together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from remanence.errors import InputError, UnknownNameError
from remanence.forgetting import BAND_NAMES
from remanence.study.limits import at_least, distinct, not_empty, positive
from remanence.study.reading import read_into
from remanence.theory.sampled_gaussian import check_alpha
from remanence.training import Recipe
from remanence.training.placement import Placement

Subset = Literal["forget", "retain", "test", "train"]
BANDS = ("easiest", *BAND_NAMES[1:-1], "hardest")


@dataclass(frozen=True)
class DataSettings:
    """Which examples.

    Args:
        source: a data set's name; or the path of a pack, folder or table, taken below the data folder.
        train: take so many training examples, drawn once and for all; everyone when 0.
        test: the same of the test examples.
    """

    source: str = "digits"
    train: int = 0
    test: int = 0


@dataclass(frozen=True)
class ModelSettings:
    """Which network, and the options of the function that makes it."""

    name: str = "small_conv"
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainSettings:
    """How every model of the study is trained, and how many moments of it are recorded."""

    recipe: Recipe
    record: int = 35
    placement: Placement = "even"

    def __post_init__(self) -> None:
        at_least(1, self, "record")  # scores, and so forget sets, come from what was recorded


@dataclass(frozen=True)
class ScoreSettings:
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
class ForgetSettings:
    """Which forget sets: bands of the privacy loss, of each size.

    Args:
        sizes: examples a set; below 1, a share of the training examples.
        bands: which of the five.
        seed: the training run whose scores choose the sets.
    """

    sizes: tuple[float, ...] = (0.1,)
    bands: tuple[str, ...] = BANDS
    seed: int = 0

    def __post_init__(self) -> None:
        not_empty(self, "sizes")
        positive(self, "sizes")
        distinct(self, "sizes", "bands")
        for band in self.bands:
            if band not in BANDS:
                raise UnknownNameError("band", band, BANDS)


@dataclass(frozen=True)
class UnlearnSettings:
    """How forget sets are unlearned.

    Args:
        methods: names of unlearning methods.
        epochs: passes over the retain set.
        every: epochs between two measurements.
        sample: measure on at most so many retain and test examples, on all when 0; the forget set is always whole.
        learning_rate: when it is not tuned.
        options: further hyperparameters, a table for each method.
    """

    methods: tuple[str, ...] = ("finetune",)
    epochs: int = 25
    every: float = 1.0
    sample: int = 0
    learning_rate: float = 0.01
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        not_empty(self, "methods")
        distinct(self, "methods")
        positive(self, "every", "learning_rate", "epochs")
        at_least(0, self, "sample")
        for method, options in self.options.items():
            if not isinstance(options, Mapping):
                raise InputError(f"`options.{method}` must be a table; got {options!r}.")


@dataclass(frozen=True)
class TuneSettings:
    """How the learning rate of unlearning is chosen: on a random forget set, of these values.

    Args:
        learning_rates: those to try; with none, `unlearn.learning_rate` is taken.
        epochs: how long each is tried.
        size: of the random forget set, as in `forget.sizes`.
        seeds: on how many training runs each is tried.
        oracles: models trained without the random set.
    """

    learning_rates: tuple[float, ...] = ()
    epochs: int = 10
    size: float = 0.1
    seeds: int = 1
    oracles: int = 2

    def __post_init__(self) -> None:
        positive(self, "learning_rates", "epochs", "size", "seeds", "oracles")
        distinct(self, "learning_rates")


@dataclass(frozen=True)
class AuditSettings:
    """How it is judged.

    Args:
        metrics: those that the figure shows.
        oracles: models trained without each forget set.
        tolerance: how near the oracles' mean counts as there.
        stay: for how many measurements it must hold.
        poison_variance: of the noise that `gus` looks for.
        poison_size: examples of each forget set that carry it; all when 0.
        poison_together: train one poisoned model for all forget sets instead of one for each.
        points: of the line between two models on which a barrier is sought.
        subsets: on which data barriers are measured.
        barrier_examples: of each subset, and of the training data for BatchNorm, at most so many; all when 0.
    """

    metrics: tuple[str, ...] = ("ua", "mia")
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
class GroupSettings:
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
        name: of its file, without the ending.
        file: what names it in a command.
        title: for a person.
        figure: which figure it ends in.
        claim: what the paper says, in our words.
        note: what a reader of the result should know about how its settings came about; Markdown.
        seeds: training runs, and unlearning runs from each.
        noises: levels of SGLD noise in training and unlearning; none is plain SGD.
        preset: which preset was taken.
    """

    title: str
    figure: str
    claim: str
    train: TrainSettings
    name: str = ""
    file: str = ""
    preset: str = ""
    note: str = ""
    seeds: int = 3
    noises: tuple[float, ...] = ()
    data: DataSettings = field(default_factory=DataSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    score: ScoreSettings = field(default_factory=ScoreSettings)
    forget: ForgetSettings = field(default_factory=ForgetSettings)
    unlearn: UnlearnSettings = field(default_factory=UnlearnSettings)
    tune: TuneSettings = field(default_factory=TuneSettings)
    audit: AuditSettings = field(default_factory=AuditSettings)
    group: GroupSettings = field(default_factory=GroupSettings)

    def __post_init__(self) -> None:
        at_least(1, self, "seeds")
        distinct(self, "noises")

    def with_noise(self, noise: float) -> Study:
        """The same study with SGLD in place of SGD."""
        recipe = replace(self.train.recipe, noise=noise)
        return replace(self, train=replace(self.train, recipe=recipe))


_RECIPE = tuple(each.name for each in fields(Recipe))


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
    own = {each.name for each in fields(TrainSettings)} - {"recipe"}
    if unknown := [key for key in plain if key not in own]:
        known = [f"train.{key}" for key in (*_RECIPE, "lr", *own)]
        raise UnknownNameError("setting", f"train.{unknown[0]}", known)
    return {**plain, "recipe": recipe}


def _gather_options(table: Mapping[str, Any]) -> dict[str, Any]:
    """[model] holds `name`; all else goes to the function that makes the model, which checks it."""
    return {"options": {key: value for key, value in table.items() if key != "name"}} | (
        {"name": table["name"]} if "name" in table else {}
    )


def plain(settings: Any) -> dict[str, Any]:
    """Settings as JSON values, for a stage's question."""
    return {
        key: list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value
        for key, value in asdict(settings).items()
    }
