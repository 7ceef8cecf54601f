"""Shadow models as stages: several processes, and each made once, found again by what it was made from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from remanence.audit import ShadowTable
from remanence.data import Split, load_dataset
from remanence.storage import Draft, Folder
from remanence.study.stages import Stage, StageKind
from remanence.study.store import Store
from remanence.training import Recipe, Run
from remanence.training.run_folder import settings_from
from remanence.tasks.poison import draw_poison
from remanence.training.train_run import RunSettings, seeded_model
from remanence.trials.shadows import ShadowSetting, shadow
from remanence.types import ForgetSet, as_ids
from remanence.unlearning import METHODS


def shadow_stages(run: Run, forget_set: ForgetSet, shadows: int, *, seed: int) -> list[Stage]:
    """One stage a shadow of a run that was unlearned; of one that was not, shadows are only trained."""
    trained = asdict(replace(run.settings, seed=0, record=0, checkpoint_every=0, keep_checkpoints=False))
    params = {
        "settings": _plain(trained),
        "poison_seed": run.settings.noise_seed,
        "unlearning": _plain(
            {key: run.unlearning.get(key) for key in ("method", "options", "recipe", "steps")}
        ),
        "removed": [each for each in run.removed.tolist() if each not in set(forget_set.ids.tolist())],
        "forget": forget_set.ids.tolist(),
        "data": run.clean[0].digest(),
        "seed": seed,
    }
    return [Stage(SHADOW, params | {"index": index}) for index in range(shadows)]


def shadow_setting(params: Mapping[str, Any]) -> tuple[ShadowSetting, Split]:
    """How the shadows of a stage are made, and from what."""
    settings = settings_from(params["settings"], Path("the shadows' settings"))
    split = _split(settings, params)
    given = params["unlearning"]

    def make(seed: int) -> nn.Module:
        return seeded_model(replace(settings, seed=seed), split.train)

    def unlearn(model: nn.Module, theirs: Split, seed: int) -> Iterator[int]:
        method = METHODS[given["method"]]
        return method(Recipe(**given["recipe"]), **given["options"])(model, theirs, seed=seed)

    return ShadowSetting(make, settings.recipe, unlearn, int(given.get("steps") or 0), params["seed"]), split


def read_shadows(store: Store, stages: Sequence[Stage]) -> ShadowTable:
    """The table that finished stages make up."""
    rows = [store.get(stage).tensors("shadow") for stage in stages]
    ids = as_ids(stages[0].params["forget"])
    return ShadowTable(
        ids, np.stack([row["member"] for row in rows]), np.stack([row["signal"] for row in rows])
    )


def _split(settings: RunSettings, params: Mapping[str, Any]) -> Split:
    train, test = load_dataset(settings.data, settings.data_dir)
    if settings.poison:
        ids = as_ids(settings.poison)
        poison = draw_poison(train, ids, variance=settings.poison_variance, seed=params["poison_seed"])
        train = poison.applied(train)
    if params["removed"]:
        train = train.without(as_ids(params["removed"]))
    return Split(train, test, ForgetSet("forget", as_ids(params["forget"])))


def _compute(draft: Draft, params: Mapping[str, Any], inputs: Sequence[Folder]) -> None:
    setting, split = shadow_setting(params)
    member, signal = shadow(setting, split, params["index"])
    draft.tensors("shadow", {"member": member, "signal": signal})


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """JSON values only, nothing that is not set: what TOML would keep."""
    return {
        key: _plain(value)
        if isinstance(value, Mapping)
        else list(value)
        if isinstance(value, tuple)
        else value
        for key, value in values.items()
        if value is not None
    }


SHADOW = StageKind("shadow", 1, _compute)
