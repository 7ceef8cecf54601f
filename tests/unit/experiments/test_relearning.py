"""Relearning: a model that only hides what it knows gets it back; an oracle does not."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import remanence as rm
from remanence.audit import METRICS, Context, Evaluation, audit_runs, evaluate
from remanence.audit.relearning import Recovery, Relearned
from remanence.data import Examples, Split, digits
from remanence.experiments import Relearning, announced, oracle_seed, train_without, unlearn_run
from remanence.experiments.unlearn import UnlearnSettings
from remanence.models import mlp
from remanence.tasks import Recipe, Task
from remanence.training import RunSettings, Training, open_run, train_and_record, train_run

FULL, TEST = digits()
RECIPE = Recipe(100, 0.1, 32, weight_decay=0.0)


def planted() -> Split:
    """Forty examples with wrong labels: only a model that was trained on them gets them right."""
    train = FULL.take(FULL.ids[:500])
    labels = train.labels.clone()
    labels[:40] = (labels[:40] + 1 + torch.arange(40) % 9) % 10
    wrong = Examples(train.ids, train.inputs, labels, train.class_names)
    return Split(wrong, TEST, rm.ForgetSet("planted", train.ids[:40]))


@pytest.fixture(scope="module")
def models() -> dict[str, nn.Module]:
    split = planted()
    task = Task(lambda: mlp(64, (128,)), split.train, split.test, RECIPE)
    training = Training(task.new_model(0), split.train, RECIPE, seed=0)
    train_and_record(training)
    # it answers 0 when in doubt, and knows better: on six seeds 0.70 to 0.75 were right, and 0.10 or more came back
    suppressed = copy.deepcopy(training.model)
    with torch.no_grad():
        suppressed[-1].bias[0] += 9
    oracles = {f"oracle{i}": train_without(task, split.forget.ids, seed=oracle_seed(0, i))[0] for i in (0, 1)}
    return {"before": training.model, "suppressed": suppressed, **oracles}


def relearned(model: nn.Module, **more: object) -> Evaluation:
    found = Relearning(**more)(model, planted(), RECIPE)  # type: ignore[arg-type]
    return evaluate(model, planted(), Context(relearned=found))


def test_suppressed_knowledge_comes_back_and_an_oracle_stays(models: dict[str, nn.Module]) -> None:
    found = {name: relearned(model) for name, model in models.items()}
    assert found["before"].forget.accuracy > 0.95
    assert found["suppressed"].forget.accuracy < 0.85, "it looks forgotten in part"
    assert METRICS["relearn_retain"](found["before"]) > 0.9
    assert METRICS["relearn_retain"](found["suppressed"]) > found["suppressed"].forget.accuracy + 0.05
    for oracle in ("oracle0", "oracle1"):
        assert METRICS["relearn_retain"](found[oracle]) < 0.15
        for metric in (
            "relearn_retain",
            "relearn_retain_log_odds",
            "relearn_speed",
            "relearn_speed_log_odds",
        ):
            apart = METRICS[metric](found["suppressed"]) - METRICS[metric](found[oracle])
            assert apart > METRICS[metric].tolerance_for(found[oracle]), metric


def test_it_repeats_and_leaves_the_model_alone(models: dict[str, nn.Module]) -> None:
    model = models["suppressed"]
    before = copy.deepcopy(model.state_dict())
    first, again, other = (Relearning(1, 3, seed=seed)(model, planted(), RECIPE) for seed in (0, 0, 1))
    assert first == again
    assert first != other
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert [recovery.steps for recovery in first.on_retain] == [(0, 15), (0, 15)]
    assert first.on_forget.steps == (0, 1, 2, 3)


def test_it_never_trains_on_the_forget_set_when_it_says_so(models: dict[str, nn.Module]) -> None:
    """Other labels of the forget set change nothing in the fine-tuning on retained data, only what is right."""
    split = planted()
    labels = split.train.labels.clone()
    labels[:40] = (labels[:40] + 1) % 10
    changed = Split(
        Examples(split.train.ids, split.train.inputs, labels, split.train.class_names),
        split.test,
        split.forget_set,
    )
    true, moved = (Relearning(2, 1)(models["before"], data, RECIPE) for data in (split, changed))
    for right, other in zip(true.on_retain, moved.on_retain, strict=True):
        assert other.accuracy[-1] < 0.1
        assert right.accuracy[-1] > 0.9


def test_metrics_by_hand_and_without_relearning() -> None:
    recovery = Recovery((0, 1, 2), (0.9, 0.4, 0.6), (-1.0, 3.0, 1.0))
    lower = Recovery((0, 1, 2), (0.9, 0.5, 0.3), (-1.0, 0.0, 0.0))
    torch.manual_seed(0)
    seen = evaluate(mlp(64, (4,)), planted(), Context(relearned=Relearned((lower, recovery), recovery)))
    assert METRICS["relearn_retain"](seen) == 0.6
    assert METRICS["relearn_retain_log_odds"](seen) == 3
    assert METRICS["relearn_speed"](seen) == 0.5
    assert METRICS["relearn_speed_log_odds"](seen) == 2
    with pytest.raises(rm.InputError, match="pass `relearning`"):
        METRICS["relearn_speed"](evaluate(mlp(64, (4,)), planted()))
    with pytest.raises(rm.InputError, match="`steps` of relearning must be at least 1; got 0"):
        Relearning(steps=0)
    with pytest.raises(rm.InputError, match="`shares` of relearning"):
        Relearning(shares=())


def test_the_cost_is_said_once_before_the_first_model() -> None:
    said: list[str] = []
    torch.manual_seed(0)
    model = mlp(64, (4,))
    relearn = announced(Relearning(1, 2), 3, said.append)
    for _ in range(2):
        relearn(model, planted(), RECIPE)
    assert len(said) == 1
    assert "3 models, each fine-tuned for 30 steps on retained data and 2 on the forget set" in said[0]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    forget_set = rm.ForgetSet("first", FULL.ids[:60])
    settings = {"data": "digits", "model": "mlp", "recipe": Recipe(4, 0.1), "record": 0}
    canaries = FULL.ids[100:160]
    trained = RunSettings(**settings, model_options={"hidden": [16]})  # type: ignore[arg-type]
    train_run(trained.with_canaries(canaries), place / "run")
    run = open_run(place / "run")
    unlearn_run(run, forget_set, UnlearnSettings("finetune", {"epochs": 1}), place / "unlearned")
    for seed in (1, 2):
        unlearn_run(run, forget_set, UnlearnSettings("retrain", seed=seed), place / f"oracle{seed}")
    return place


def test_an_audit_compares_with_oracles_that_were_fine_tuned_too(runs: Path) -> None:
    opened = [open_run(runs / name) for name in ("run", "unlearned")]
    oracles = [open_run(runs / f"oracle{seed}") for seed in (1, 2)]
    people = {example: str(example % 10) for example in FULL.ids.tolist()}
    forget_set = rm.ForgetSet("first", FULL.ids[:60])
    before, after = audit_runs(
        opened, forget_set, oracles, relearning=Relearning(1, 2), people=people, tolerance=0.05
    )
    found = {finding.metric.name: finding for finding in after.findings}
    for name in ("relearn_retain", "relearn_speed", "harm", "harm_worst_class", "harm_worst_person", "rmia"):
        assert found[name].oracle_mean is not None, name
    assert found["harm_worst_class"].value >= found["harm"].value
    assert found["harm_worst_person"].value >= found["harm"].value
    assert after.one_run is not None
    assert found["one_run_epsilon"].value == after.one_run.epsilon
    assert f"guesses about {after.one_run.canaries} canaries are right" in after.one_run.sentence()
    assert after.one_run.canaries == 60
    assert "relative_mmd" in found
    assert any(
        reason.startswith("mmd_p: ") and "at least 19 oracles; got 2" in reason
        for reason in after.not_measured
    )
    assert "harm" not in {finding.metric.name for finding in before.findings}
    own = Relearning(1, 2)(opened[1].model(), opened[1].split(forget_set), opened[1].settings.recipe)
    assert found["relearn_retain"].value == max(recovery.accuracy[1] for recovery in own.on_retain)
    with pytest.raises(rm.InputError, match="at least 19 oracles"):
        audit_runs(opened, forget_set, oracles, metrics=["mmd_p"])
    with pytest.raises(rm.InputError, match="`harm` needs the model before unlearning"):
        audit_runs(opened[1:], forget_set, oracles, metrics=["harm"])
    with pytest.raises(rm.InputError, match="`relearn_speed` needs relearning"):
        audit_runs(opened, forget_set, oracles, metrics=["relearn_speed"])


def test_an_open_run_relearns_by_default(runs: Path) -> None:
    audit = rm.open_run(runs / "unlearned").audit(FULL.ids[:60])
    names = {finding.metric.name for finding in audit.findings}
    assert {"relearn_retain", "relearn_speed"} <= names
    skipped = rm.open_run(runs / "unlearned").audit(FULL.ids[:60], relearning=None)
    assert not any(finding.metric.name.startswith("relearn") for finding in skipped.findings)


def test_canaries_are_left_out_by_coins(runs: Path) -> None:
    run = open_run(runs / "run")
    assert run.canaries is not None
    assert run.canaries.examples.ids.tolist() == FULL.ids[100:160].tolist()
    left_out = set(run.settings.without)
    np.testing.assert_array_equal(
        run.canaries.included, [canary not in left_out for canary in FULL.ids[100:160].tolist()]
    )
    assert 15 < run.canaries.included.sum() < 45
    oracle = open_run(runs / "oracle1")
    assert oracle.canaries is None, "its coins are those of the run, not its own"
    assert left_out <= set(oracle.settings.without)
    with pytest.raises(rm.InputError, match="poisoned otherwise"):
        RunSettings("digits", "mlp", RECIPE, poison=(1,)).with_canaries(np.array([1, 2]))
    with pytest.raises(rm.InputError, match="left out of training otherwise"):
        RunSettings("digits", "mlp", RECIPE, without=(2,)).with_canaries(np.array([1, 2]))


def test_forged_coins_are_refused(runs: Path) -> None:
    run = open_run(runs / "run")
    chosen = RunSettings(**(vars(run.settings) | {"without": run.settings.canaries[:30]}))
    with pytest.raises(rm.errors.RunFolderError, match="by the coins of its seed"):
        _ = type(run)(run.folder, chosen, {}).canaries


def test_one_run_proves_that_wrong_labels_were_learned() -> None:
    """Canaries with wrong labels, which only memory gets right: a bound well above 0; none for an oracle."""
    from remanence.tasks.canaries import Canaries, flip_coins

    split = planted()
    ids = split.forget.ids
    included = flip_coins(ids, 3)
    task = Task(lambda: mlp(64, (128,)), split.train, split.test, RECIPE)
    model, _ = train_without(task, ids[~included], seed=3)
    oracle, _ = train_without(task, ids, seed=4)
    context = Context(canaries=Canaries(split.forget, included))
    assert METRICS["one_run_epsilon"](evaluate(model, split, context)) > 1
    assert METRICS["one_run_epsilon"](evaluate(oracle, split, context)) < 0.5
    with pytest.raises(rm.InputError, match="needs canaries"):
        METRICS["one_run_epsilon"](evaluate(model, split))


def test_a_task_without_right_answers_is_judged_by_its_signal() -> None:
    inputs, targets = FULL.inputs[:80].flatten(1), FULL.inputs[:80].flatten(1).mean(dim=1, keepdim=True)
    data = torch.utils.data.TensorDataset(inputs, targets)
    task = Task(
        lambda: nn.Linear(64, 1),
        data,
        data,
        Recipe(2, 0.01, 16),
        loss=lambda out, target: (out - target).abs()[:, 0],
    )
    split = task.split(rm.ForgetSet("f", task.train.ids[:10]))
    found = Relearning(1, 2)(task.new_model(0), split, task.recipe)
    seen = evaluate(task.new_model(0), split, Context(relearned=found))
    assert METRICS["relearn_retain_log_odds"](seen) == max(curve.log_odds[1] for curve in found.on_retain)
    with pytest.raises(rm.InputError, match="pass `correct` to the task"):
        METRICS["relearn_retain"](seen)


def test_a_wrecked_model_gives_no_number_and_does_not_end_the_audit() -> None:
    torch.manual_seed(0)
    model = mlp(64, (8,))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1e30)
    found = Relearning(1, 2)(model, planted(), RECIPE)
    assert found.on_forget.steps == (0,)
    with pytest.raises(rm.InputError, match="no longer finite at once"):
        METRICS["relearn_speed"](evaluate(mlp(64, (8,)), planted(), Context(relearned=found)))
