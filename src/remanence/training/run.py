"""A whole training run in a folder: started, killed, resumed, finished."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from remanence.data import Examples, load_dataset
from remanence.errors import DataError, InputError, RunFolderError
from remanence.gradients.evaluation_mode import evaluating
from remanence.models import build_model
from remanence.storage import SEAL, Draft, Folder, atomic, open_folder, seal_in_place, to_toml, write_trace
from remanence.storage.lock import exclusive
from remanence.training.checkpoints import Checkpoints, write_weights
from remanence.training.loop import Training
from remanence.training.placement import Placement
from remanence.training.poison import VARIANCE, Poison, draw_poison, write_poison
from remanence.training.randomness import derive_seed
from remanence.training.ranks import ALONE, Ranks
from remanence.training.recipe import Recipe
from remanence.training.recorder import TRACE_FILES, Recorder
from remanence.types import as_ids, check_positive

UNFINISHED = "unfinished.toml"
"""What a run was asked to do, until it is finished."""
Progress = Callable[[int, int], None]
"""(steps done, steps in all) -> None."""


@dataclass(frozen=True)
class RunSettings:
    """What a run is asked to do; written into it as config.toml.

    Args:
        data: a data set's name, or the path of one.
        model: a model's name, or `package.module:function`.
        recipe: how to train.
        seed: of everything random.
        model_options: keyword arguments of the model.
        data_dir: where data sets lie.
        record: checkpoints of the trace; none when 0.
        placement: where they fall.
        sigma: the noise to assume in the accounting when none is added.
        checkpoint_every: steps between checkpoints of the run's state; an epoch when 0.
        keep_checkpoints: keep them all, for a trace made afterwards.
        without: ids to leave out of training; the run is then an oracle for them.
        poison: ids whose inputs are trained on with Gaussian noise, which is kept, so that `gus` can look for it.
        poison_variance: of that noise, on the scale of the inputs as the network sees them.
        poison_seed: of that noise; the run's own when None. An oracle takes that of the run it is compared with.
    """

    data: str
    model: str
    recipe: Recipe
    seed: int = 0
    model_options: Mapping[str, Any] = field(default_factory=dict)
    data_dir: str | None = None
    record: int = 35
    placement: Placement = "adaptive"
    sigma: float = 0.1
    checkpoint_every: int = 0
    keep_checkpoints: bool = False
    without: tuple[int | str, ...] = ()
    poison: tuple[int | str, ...] = ()
    poison_variance: float = VARIANCE
    poison_seed: int | None = None

    def __post_init__(self) -> None:
        check_positive("poison_variance", self.poison_variance)
        if both := set(self.without) & set(self.poison):
            raise InputError(
                f"An example left out of training cannot be poisoned; {next(iter(both))!r} is both."
            )

    @property
    def noise_seed(self) -> int:
        """The seed of the poison."""
        return self.seed if self.poison_seed is None else self.poison_seed


def train_run(
    settings: RunSettings,
    out: Path,
    *,
    resume: bool = False,
    ranks: Ranks = ALONE,
    progress: Progress = lambda done, total: None,
) -> Folder:
    """Train, record, and leave a sealed run in `out`.

    A killed run goes on with `resume`, from its last checkpoint, and ends with the same bits as one that was never
    disturbed. With nothing saved yet, it starts afresh.
    """
    fresh = ranks.first and claim(asdict(settings), out, resume)
    ranks.wait()
    if (out / SEAL).exists():
        return open_folder(out, "training")
    with exclusive(out / f".lock-{ranks.rank}", f"Another process is training in {out}; wait for it."):
        try:
            _train(settings, out, ranks, progress)
        except InputError:
            if fresh:
                (out / UNFINISHED).unlink(missing_ok=True)  # what cannot begin must not stand in the way
            raise
    ranks.wait()
    return open_folder(out, "training")


def _train(settings: RunSettings, out: Path, ranks: Ranks, progress: Progress) -> None:
    whole, test = load_dataset(settings.data, settings.data_dir)
    poison = _poison(settings, whole)
    train = _training_set(settings, whole, poison)
    model = seeded_model(settings, train)
    training = Training(model, train, settings.recipe, seed=settings.seed, ranks=ranks)
    checkpoints = Checkpoints(out / "checkpoints", keep_all=settings.keep_checkpoints)
    rows = checkpoints.restore(training)
    recorder = _recorder(settings, training, out) if settings.record else None
    every = settings.checkpoint_every or training.steps_per_epoch
    for step in training.steps():
        if recorder is not None:
            recorder.step()
        if step % training.steps_per_epoch == 0:
            rows += _measure(model, test, step, settings.seed)
        if step % every == 0 and ranks.first:
            checkpoints.save(training, rows)
        progress(step, training.total_steps)
    if ranks.first:
        _seal(out, settings, model, rows, recorder, poison)


def _poison(settings: RunSettings, whole: Examples) -> Poison | None:
    if not settings.poison:
        return None
    ids, variance = as_ids(settings.poison), settings.poison_variance
    return draw_poison(whole, ids, variance=variance, seed=settings.noise_seed)


def _training_set(settings: RunSettings, whole: Examples, poison: Poison | None) -> Examples:
    poisoned = whole if poison is None else poison.applied(whole)
    train = poisoned.without(as_ids(settings.without)) if settings.without else poisoned
    if not len(train):
        raise DataError(f"Something must be left to train on; all {len(whole)} examples were to be left out.")
    return train


def seeded_model(settings: RunSettings, train: Examples) -> nn.Module:
    """The model with the initial weights that the run's seed gives it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(settings.seed, "weights"))
        return build_model(settings.model, train, **settings.model_options)


def _recorder(settings: RunSettings, training: Training, out: Path) -> Recorder:
    n = len(training.examples)
    return Recorder(
        training.model,
        training.examples,
        total_steps=training.total_steps,
        checkpoints=settings.record,
        placement=settings.placement,
        mechanism=settings.recipe.mechanism(n, assumed_sigma=settings.sigma, model=training.model),
        out=out,
        start=training.step,
        provenance={"data": training.data_digest, "seed": str(settings.seed)},
        ranks=training.ranks,
    )


def _measure(model: nn.Module, test: Examples, step: int, seed: int) -> list[dict[str, Any]]:
    with evaluating(model), torch.no_grad():
        hits = sum(
            int((model(inputs).argmax(dim=1) == labels).sum())
            for inputs, labels in zip(
                torch.split(test.inputs, 1024), torch.split(test.labels, 1024), strict=True
            )
        )
    return [{"metric": "accuracy", "subset": "test", "value": hits / len(test), "step": step, "seed": seed}]


def _seal(
    out: Path,
    settings: RunSettings,
    model: nn.Module,
    rows: list[dict[str, Any]],
    recorder: Recorder | None,
    poison: Poison | None,
) -> None:
    draft = Draft(out)
    draft.config(asdict(settings))
    write_weights(draft, model)
    draft.rows("measurements", rows)
    files = ["config.toml", "weights.safetensors", "measurements.jsonl"]
    if recorder is not None:
        write_trace(draft, recorder.trace())
        files += TRACE_FILES
    if poison is not None:
        write_poison(draft, poison)
        files.append("poison.safetensors")
    seal_in_place(out, "training", files)
    if recorder is not None:
        recorder.clear()
    if not settings.keep_checkpoints:
        shutil.rmtree(out / "checkpoints", ignore_errors=True)
    (out / UNFINISHED).unlink(missing_ok=True)


def claim(config: Mapping[str, Any], out: Path, resume: bool, *, kind: str = "training") -> bool:
    """Make the folder this run's, or say why not; whether it is new. Nothing of anybody else's is touched."""
    if out.exists() and not out.is_dir():
        raise RunFolderError(f"{out} is a file; --out must be a folder.")
    wanted = to_toml(config)
    if (out / SEAL).exists():
        open_folder(out, kind)
        if not resume:
            raise RunFolderError(f"{out} holds a finished run; choose another --out. Nothing was changed.")
        _same(tomllib.loads((out / "config.toml").read_text()), tomllib.loads(wanted), out)
    elif (out / UNFINISHED).exists():
        if not resume:
            raise RunFolderError(f"{out} holds an unfinished run; add --resume to go on with it.")
        _same(tomllib.loads((out / UNFINISHED).read_text()), tomllib.loads(wanted), out)
    else:
        if out.exists() and any(not entry.name.startswith(".") for entry in out.iterdir()):
            raise RunFolderError(
                f"{out} is not empty and not a run; choose another --out. Nothing was changed."
            )
        atomic.write_text(out / UNFINISHED, wanted)
        return True
    return False


def _same(found: Mapping[str, Any], wanted: Mapping[str, Any], out: Path, prefix: str = "") -> None:
    for key in sorted(found.keys() | wanted.keys()):
        ours, theirs = wanted.get(key), found.get(key)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            _same(theirs, ours, out, f"{prefix}{key}.")
        elif ours != theirs:
            raise InputError(
                f"{out} was begun with {prefix}{key} = {theirs}; now it is {ours}. Resume with the same settings."
            )
