"""Oracles: one rule for their seeds, and the same model wherever it is trained."""

from pathlib import Path

import numpy as np
import torch

from remanence.data import digits
from remanence.experiments import cached_oracle, oracle_seed, train_without
from remanence.stages import Store, in_order, run_stages
from remanence.study.catalog import load_study
from remanence.study.running import plan
from remanence.study.train_stages import Oracle
from remanence.tasks import derive_seed
from remanence.training import Recipe, RunSettings, open_run, train_run
from remanence.types import ForgetSet

FORGET = ForgetSet("some", digits()[0].ids[:20])


def test_an_oracle_shares_its_seed_with_no_run_and_no_other_oracle() -> None:
    seeds = {oracle_seed(seed, index) for seed in range(20) for index in range(20)}
    assert len(seeds) == 400
    assert seeds.isdisjoint(range(10_000_000)), "nobody gives a run such a seed by hand"
    assert oracle_seed(3) == oracle_seed(3, 0) == derive_seed(3, "oracle", 0)


def test_an_oracle_in_memory_is_the_one_in_a_folder(tmp_path: Path) -> None:
    """Studies train oracles in a stage, tuning and requests train them into a folder: the same weights."""
    recipe = Recipe(epochs=1, learning_rate=0.1)
    train_run(RunSettings("digits", "mlp", recipe, record=0, model_options={"hidden": [8]}), tmp_path / "run")
    run, seed = open_run(tmp_path / "run"), oracle_seed(0, 1)
    model, steps = train_without(run.task, FORGET.ids, seed=seed)
    oracle = cached_oracle(run, FORGET, tmp_path / "cache", seed=seed)
    assert steps == recipe.total_steps(1297 - 20)
    weights = oracle.model().state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert not oracle.was_trained_on(FORGET.ids).any()
    assert oracle.settings.seed == seed
    before = oracle.folder.path.stat().st_mtime_ns
    assert cached_oracle(run, FORGET, tmp_path / "cache", seed=seed).folder.path == oracle.folder.path
    assert oracle.folder.path.stat().st_mtime_ns == before, "trained once"


def test_a_studys_oracle_follows_the_same_rule(tmp_path: Path, tiny: list[str]) -> None:
    goal = plan(load_study("curves", "smoke", [*tiny, "audit.oracles=2", "model.width=4"])).goal
    stages = [stage for stage in in_order([goal]) if isinstance(stage, Oracle)]
    stage = next(stage for stage in stages if (stage.forget.way, stage.index) == ("hardest", 1))
    store = Store(tmp_path)
    run_stages([stage], store, workers=1)
    ids = np.asarray(store.get(stage.forget).document("forget_set")["ids"])
    model, _ = train_without(stage.task.open(), ids, seed=oracle_seed(stage.seed, 1))
    weights = store.get(stage).tensors("weights")
    assert all(np.array_equal(value.numpy(), weights[name]) for name, value in model.state_dict().items())
