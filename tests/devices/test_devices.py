"""Everything that computes, on an accelerator: the same numbers as on the CPU, and no tensor in the wrong place."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import remanence as rm
from remanence.audit import Context, evaluate
from remanence.data import Examples, Split, digits
from remanence.experiments import Relearning
from remanence.experiments.shadows import make_shadow
from remanence.models import small_conv
from remanence.requests import read_calibration
from remanence.tasks import Recipe, Task, draw_poison
from remanence.tasks.canaries import Canaries
from remanence.training import Recorder, Recording, Training, fit_model, train_and_record
from remanence.unlearning import METHODS, FoldTargets, make_method

RECIPE = Recipe(epochs=2, learning_rate=0.05, batch_size=32)
CLOSE = 1e-4
OPTIONS: dict[str, dict[str, Any]] = {"scrub": {"max_epochs": 1}}


def options(name: str, train: Examples, folder: Path) -> dict[str, Any]:
    """Options of a method; two of them need outputs of models that never saw the examples."""
    if name not in ("out_of_fold", "routed"):
        return OPTIONS.get(name, {})
    path = folder / "targets"
    if not path.exists():
        outputs = torch.randn(len(train), train.n_outputs, generator=torch.Generator().manual_seed(0))
        everybody = np.ones(len(train), bool)
        FoldTargets.from_folds(train, [(everybody, outputs)], losses=np.arange(len(train)) / 10).write(path)
    return {"targets": str(path)} | ({"easy": 0.5, "hard": 1.0} if name == "routed" else {})


class TinyTransformer(nn.Module):
    """Rows of a picture as words; without biases, since the gradient of that of the keys is zero but for rounding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 16)
        self.layer = nn.TransformerEncoderLayer(
            16, 2, 32, dropout=0.1, batch_first=True, norm_first=True, bias=False
        )
        self.head = nn.Linear(16, 10)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.layer(self.embed(pictures[:, 0])).mean(dim=1))
        return logits


def batch_norm() -> nn.Module:
    """Without a bias before BatchNorm: its gradient is zero but for rounding, which AdamW makes steps of."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Flatten(),
        nn.Linear(144, 10),
    )


MODELS: dict[str, Callable[[], nn.Module]] = {
    "convolutions": lambda: small_conv(width=4),
    "batch_norm": batch_norm,
    "transformer": TinyTransformer,
}


def few(n: int = 120, m: int = 60) -> tuple[Examples, Examples]:
    train, test = digits()
    return train.take(train.ids[:n]), test.take(test.ids[:m])


def task(device: str | torch.device, model: str = "convolutions", **changes: Any) -> Task:
    return Task(MODELS[model], *few(), replace(RECIPE, **changes), device=device)


def split() -> Split:
    train, test = few()
    return Split(train, test, rm.ForgetSet("f", train.ids[5:35]))


def weights(model: nn.Module) -> NDArray[np.float64]:
    return torch.cat(
        [tensor.detach().cpu().double().flatten() for tensor in model.state_dict().values()]
    ).numpy()


def same(one: Any, other: Any, tolerance: float = CLOSE) -> None:
    np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"noise": 0.05, "sampling": "poisson", "radius": 3.0},
        {"optimizer": "adamw", "learning_rate": 1e-3, "clip": 1.0, "schedule": "cosine", "warmup": 0.2},
        {"augment": True, "accumulate": 2},
    ],
    ids=["sgd", "sgld", "adamw", "augmented"],
)
def test_training_and_recording(device: torch.device, model: str, changes: dict[str, Any]) -> None:
    if model == "transformer" and changes.get("augment"):
        pytest.skip("crops of a picture as words")
    traces, ends = [], []
    for where in ("cpu", device):
        own = task(where, model, **changes)
        training = Training(own.new_model(1), own.train, own.recipe, seed=2)
        assert {p.device.type for p in training.model.parameters()} == {torch.device(where).type}
        recorder = train_and_record(training, Recording(3, "adaptive"))
        assert recorder is not None
        traces.append(recorder.trace())
        ends.append(weights(training.model))
    same(*ends)
    assert traces[0].steps.tolist() == traces[1].steps.tolist()
    for name in ("norms", "confidence", "error"):
        same(getattr(traces[0], name), getattr(traces[1], name), 1e-3)


def test_norms_in_flight(device: torch.device) -> None:
    traces = []
    for where in ("cpu", device):
        own = task(where)
        model, train = own.new_model(1), own.train
        mechanism = own.recipe.mechanism(len(train), assumed_sigma=0.1)
        batches = torch.arange(len(train)).split(30)
        mechanism = replace(mechanism, steps=len(batches))
        recorder = Recorder(
            model, train, total_steps=len(batches), mechanism=mechanism, overhead=math.inf, share=True
        )
        for rows in batches:
            with recorder.batch(train.ids[rows.numpy()]):
                loss = nn.functional.cross_entropy(
                    model(train.inputs[rows].to(where)), train.labels[rows].to(where)
                )
                loss.backward()
            recorder.step()
        traces.append(recorder.finish())
    same(traces[0].norms, traces[1].norms)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("model", ["convolutions", "batch_norm"])
def test_every_method(device: torch.device, name: str, model: str, tmp_path: Path) -> None:
    ends = []
    for where in ("cpu", device):
        own = task(where, model)
        trained, _ = fit_model(own, own.train, seed=0)
        method = make_method(name, {"epochs": 2, "lr": 0.01} | options(name, own.train, tmp_path), RECIPE)
        for _ in method(trained, split(), seed=3):
            pass
        ends.append(weights(trained))
    same(*ends)


def test_every_metric(device: torch.device) -> None:
    values = []
    for where in ("cpu", device):
        own = task(where)
        clean, data = own.train, split()
        poison = draw_poison(clean, data.forget_set.ids, seed=0)
        model, _ = fit_model(own, poison.applied(clean), seed=0)
        oracles = tuple(
            evaluate(fit_model(own, data.retain, seed=seed)[0], data) for seed in (1, 2, 3, 4, 5, 6)
        )
        shadows = shadow_table(own, data)
        context = Context(
            oracles=oracles,
            ensemble=oracles[:5],
            poison=poison,
            clean=clean,
            shadows=shadows,
            before=oracles[0],
            people={example: str(example % 7) for example in clean.ids.tolist()},
            relearned=Relearning(1, 2)(model, data, own.recipe),
            canaries=Canaries(data.retain.take(data.retain.ids[:20]), np.arange(20) % 2 == 0),
        )
        evaluation = evaluate(model, data, context)
        many = replace(evaluation, context=replace(context, oracles=(oracles * 4)[:19]))
        values.append(
            {name: metric(many if name == "mmd_p" else evaluation) for name, metric in rm.METRICS.items()}
        )
    assert values[0].keys() == rm.METRICS.keys()
    for name in rm.METRICS:
        assert values[0][name] == pytest.approx(values[1][name], rel=1e-3, abs=1e-3), name


def shadow_table(own: Task, data: Split) -> Any:
    from remanence.audit import ShadowTable

    rows = [make_shadow(own, data, index, seed=0) for index in range(8)]
    return ShadowTable(
        data.forget.ids, np.stack([row[0] for row in rows]), np.stack([row[1] for row in rows])
    )


@pytest.mark.parametrize("match", ["none", "weights", "activations"])
@pytest.mark.parametrize("model", ["convolutions", "batch_norm"])
def test_barriers(device: torch.device, match: Any, model: str) -> None:
    values = []
    for where in ("cpu", device):
        own = task(where, model)
        ends = [fit_model(own, own.train, seed=seed)[0] for seed in (0, 1)]
        values.append(rm.loss_barrier(*ends, own.test, match=match, points=5, rounds=1).losses)
    same(values[0], values[1], 1e-3)


def test_a_request_from_training_to_evidence(device: torch.device, tmp_path: Path) -> None:
    """Train, calibrate, plan, forget, audit and verify; the runs of both devices are opened on the other too."""
    results = []
    for where in ("cpu", str(device)):
        settings = rm.RunSettings(
            "digits", "logistic", Recipe(epochs=2, learning_rate=0.1, batch_size=128), record=5, device=where
        )
        run = rm.train_run(settings, tmp_path / f"run-{where}")
        assert next(run.model().parameters()).device.type == torch.device(where).type
        reference = rm.open_run(run.folder.path, task=run.whole_task)  # stays in this process
        reference.calibrate(method="finetune", models=20, sets=20, workers=2, budget=20)
        ids = run.data()[0].ids[:30]
        plan = reference.plan(ids)
        result = reference.forget(ids, out=tmp_path / f"forgotten-{where}")
        audit = result.run.audit(ids)
        checks = rm.verify_evidence(tmp_path / f"forgotten-{where}" / "evidence.json")
        assert all(check.holds for check in checks)
        values = {finding.metric.name: finding.value for finding in audit.findings}
        results.append((weights(result.run.model()), plan.expected.mia, plan.expected.log_odds, values))
        assert len(read_calibration(run).trials) == 20
    same(results[0][0], results[1][0])
    same(results[0][1:3], results[1][1:3], 1e-3)
    assert results[0][3] == pytest.approx(results[1][3], abs=0.01)


def test_a_run_moves_between_devices(device: torch.device, tmp_path: Path) -> None:
    settings = rm.RunSettings(
        "digits", "logistic", Recipe(epochs=1, learning_rate=0.1), record=0, device=str(device)
    )
    path = rm.train_run(settings, tmp_path / "run").folder.path
    near, far = (rm.open_run(path, device=where).model() for where in ("cpu", str(device)))
    same(weights(near), weights(far), 0)


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(rm.InputError, match="cuda:77"):
        task("cuda:77")
    with pytest.raises(rm.InputError, match="nonsense"):
        task("nonsense")


class Words(Dataset[dict[str, torch.Tensor]]):
    """Dicts with a mask, read batch by batch."""

    def __len__(self) -> int:
        return 60

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        if row >= len(self):
            raise IndexError(row)
        words = torch.randint(0, 12, (6,), generator=torch.Generator().manual_seed(row))
        return {"words": words, "mask": (torch.arange(6) < 2 + row % 5).float(), "labels": words[0] % 3}


class Bag(nn.Module):
    """The mean of the words that the mask leaves."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(12, 8), nn.Linear(8, 3)

    def forward(self, words: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        mean = (self.embed(words) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        logits: torch.Tensor = self.head(mean)
        return logits


def own_fit(model: nn.Module, dataset: Any, *, seed: int, steps: int | None = None) -> None:
    """A user's training: batches go where the model is."""
    where = next(model.parameters()).device
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    for inputs, targets in DataLoader(
        dataset, 20, shuffle=True, generator=torch.Generator().manual_seed(seed)
    ):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs.to(where)), targets.to(where)).backward()
        optimizer.step()


def other_task(kind: str, device: str | torch.device) -> Task:
    x = torch.randn(120, 6, generator=torch.Generator().manual_seed(0))
    labels, number = (x[:, :3] > 0).float(), x[:, :1] - 0.5 * x[:, 1:2]
    if kind == "words":
        return Task(Bag, Words(), Words(), RECIPE, device=device)
    if kind == "labels":
        data = TensorDataset(x, labels), TensorDataset(x[:40] + 0.1, labels[:40])
        return Task(lambda: nn.Linear(6, 3), *data, RECIPE, loss="binary_cross_entropy", device=device)
    data = TensorDataset(x, number), TensorDataset(x[:40] + 0.1, number[:40])
    fit = own_fit if kind == "own fit" else None
    return Task(lambda: nn.Linear(6, 1), *data, RECIPE, loss="squared_error", fit=fit, device=device)


@pytest.mark.parametrize("kind", ["words", "labels", "number", "own fit"])
def test_other_targets_and_inputs(device: torch.device, kind: str, tmp_path: Path) -> None:
    """Training, a row of the trace, every method, and all that can be measured of them."""
    from remanence.audit.metric_choice import DEFAULT_METRICS
    from remanence.training.example_statistics import example_statistics

    results: list[dict[str, Any]] = []
    for where in ("cpu", device):
        own = other_task(kind, where)
        model, _ = fit_model(own, own.train, seed=0)
        values: dict[str, Any] = {"weights": weights(model), **example_statistics(model, own.train)}
        data = own.split(rm.ForgetSet("f", own.train.ids[:20]))
        for name in METHODS:
            changed, _ = fit_model(own, own.train, seed=0)
            method = make_method(name, {"epochs": 2, "lr": 0.01} | options(name, own.train, tmp_path), RECIPE)
            for _ in method(changed, data, seed=3):
                pass
            evaluation = evaluate(changed, data)
            for metric in DEFAULT_METRICS:
                if own.train.has_classes or not rm.METRICS[metric].of_classes:
                    values[f"{name} {metric}"] = rm.METRICS[metric](evaluation)
        results.append(values)
    assert results[0].keys() == results[1].keys()
    for name, value in results[0].items():
        same(value, results[1][name], 1e-3)


def test_a_request_on_a_task_of_ones_own(device: torch.device, tmp_path: Path) -> None:
    """Own training function and a regression, from training to verified evidence."""
    results = []
    for where in ("cpu", device):
        folder = tmp_path / str(where)
        run = rm.train_run(other_task("own fit", where), folder / "run")
        run.calibrate(models=20, sets=20, budget=10, sizes=(20, 25))
        ids = list(range(20))
        result = run.forget(ids, out=folder / "new")
        assert all(check.holds for check in rm.verify_evidence(folder / "new" / "evidence.json"))
        results.append((weights(result.run.model()), run.plan(list(range(20, 45))).expected.mia))
    same(results[0][0], results[1][0])
    same(results[0][1], results[1][1], 1e-3)
