"""Tasks that users bring: any data, any loss, their own training, models trained elsewhere."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset, get_worker_info

import remanence as rm
from remanence.cli.main import run as command
from remanence.data import StreamedExamples, digits
from remanence.models import mlp
from remanence.training import PastTraining, Training, fit_model
from remanence.training.import_run import ONE_MODEL

RECIPE = rm.Recipe(epochs=2, learning_rate=0.05, batch_size=32)


def pictures(n: int = 160, m: int = 60) -> tuple[TensorDataset, TensorDataset]:
    train, test = digits()
    return TensorDataset(train.inputs[:n], train.labels[:n]), TensorDataset(test.inputs[:m], test.labels[:m])


class Items(Dataset[Any]):
    """Items of any structure."""

    def __init__(self, *items: Any) -> None:
        self.items = list(items)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, row: int) -> Any:
        return self.items[row]


def named(n: int, seed: int) -> Items:
    """Dicts with a mask, as transformers have them."""
    random = torch.Generator().manual_seed(seed)
    return Items(
        *(
            {
                "words": torch.randint(0, 12, (6,), generator=random),
                "mask": (torch.arange(6) < 2 + i % 5).float(),
                "labels": torch.tensor(i % 3),
            }
            for i in range(n)
        )
    )


class Bag(nn.Module):
    """The mean of the words that the mask leaves."""

    def __init__(self, outputs: int = 3) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(12, 8), nn.Linear(8, outputs)

    def forward(self, words: Tensor, mask: Tensor) -> Mapping[str, Tensor]:
        mean = (self.embed(words) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return Answer(self.head(mean))


class Answer(dict[str, Tensor]):
    """An output with logits, as transformers return."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__(logits=logits)
        self.logits = logits


def fit(model: nn.Module, dataset: Dataset[Any], *, seed: int, steps: int | None = None) -> None:
    loader = DataLoader(dataset, 32, shuffle=True, generator=torch.Generator().manual_seed(seed))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()


def small() -> nn.Module:
    return mlp(in_features=64, hidden=(16,), num_classes=10)


def own_task(**changes: Any) -> rm.Task:
    train, test = pictures()
    return rm.Task(**({"model": small, "train": train, "test": test, "fit": fit} | changes))


def test_dicts_go_through_training_norms_and_every_metric() -> None:
    task = rm.Task(Bag, named(90, 0), named(30, 1), RECIPE)
    assert isinstance(task.train, StreamedExamples)
    assert task.train.class_names == ("0", "1", "2")
    model, steps = fit_model(task, task.train, seed=0)
    assert steps == 6
    recorder = rm.Recorder(model, task=task, total_steps=6, checkpoints=1)
    for _ in range(6):
        recorder.step()
    trace = recorder.trace()
    for i in (0, 4, 11):
        item = task.train.batch(torch.tensor([i]))
        model.zero_grad()
        nn.functional.cross_entropy(model(**item[0]).logits, item[1]).backward()
        squares = [p.grad.square().sum() for p in model.parameters() if p.grad is not None]
        assert trace.norms[-1, i] == pytest.approx(float(torch.stack(squares).sum().sqrt()), rel=1e-4)
    from remanence.audit import evaluate

    evaluation = evaluate(model, task.split(rm.ForgetSet("f", task.train.ids[:20])))
    for name in ("ua", "ra", "test", "mia", "mia_loss", "mia_entropy", "mia_confidence", "log_odds"):
        assert np.isfinite(rm.METRICS[name](evaluation)), name


def test_ragged_items_with_their_own_collate_function() -> None:
    random = torch.Generator().manual_seed(0)
    sentences = [(torch.randint(1, 12, (2 + i % 5,), generator=random), i % 3) for i in range(40)]

    def pad(items: list[Any]) -> tuple[dict[str, Tensor], Tensor]:
        words = nn.utils.rnn.pad_sequence([item[0] for item in items], batch_first=True)
        return {"words": words, "mask": (words > 0).float()}, torch.tensor([item[1] for item in items])

    task = rm.Task(Bag, Items(*sentences), Items(*sentences[:9]), RECIPE, collate_fn=pad)
    model, _ = fit_model(task, task.train, seed=0)
    recorder = rm.Recorder(model, task=task, total_steps=4, checkpoints=1)
    for _ in range(4):
        recorder.step()
    assert np.isfinite(recorder.trace().norms).all()
    with pytest.raises(rm.errors.DataError, match="collate_fn"):
        rm.Task(Bag, Items(*sentences), Items(*sentences[:9]), RECIPE).train.batch(torch.tensor([0, 1]))


def test_an_autoencoder_has_its_input_as_target() -> None:
    items = Items(*torch.rand(30, 5))
    task = rm.Task(lambda: nn.Linear(5, 5), items, items, RECIPE, loss="squared_error")
    model, _ = fit_model(task, task.train, seed=0)
    inputs, targets = task.train.batch(torch.arange(3))
    assert torch.equal(inputs, targets)
    expected = 0.5 * (model(inputs) - inputs).square().sum(1)
    assert torch.allclose(task.train.readout.losses(model(inputs), targets, 3), expected)


def test_the_loss_is_the_one_of_the_task_everywhere() -> None:
    """Twice the loss: training as with twice the learning rate, norms twice as large."""

    def twice(outputs: Any, targets: Tensor) -> Tensor:
        return 2 * rm.losses.cross_entropy(outputs, targets)

    train, test = pictures()
    plain_recipe = rm.Recipe(epochs=1, learning_rate=0.1, batch_size=32, momentum=0, weight_decay=0)
    slow_recipe = rm.Recipe(epochs=1, learning_rate=0.05, batch_size=32, momentum=0, weight_decay=0)
    plain = rm.Task(small, train, test, plain_recipe)
    own = rm.Task(small, train, test, slow_recipe, loss=twice)
    one, other = (fit_model(task, task.train, seed=3)[0] for task in (plain, own))
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-6)
    from remanence.training.example_statistics import example_statistics

    ratio = example_statistics(one, own.train)["norms"] / example_statistics(one, plain.train)["norms"]
    np.testing.assert_allclose(ratio, 2, rtol=1e-4)


@pytest.mark.parametrize("kind", ["labels", "numbers"])
def test_other_targets_go_through_every_method_and_metric(kind: str, tmp_path: Path) -> None:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(120, 6, generator=random)
    y = (x[:, :3] > 0).float() if kind == "labels" else x[:, :1] - 0.5 * x[:, 1:2]
    data = TensorDataset(x, y), TensorDataset(x[:40] + 0.1, y[:40])
    loss = "binary_cross_entropy" if kind == "labels" else "squared_error"
    task = rm.Task(lambda: nn.Linear(6, y.shape[1]), *data, RECIPE, loss=loss)
    from remanence.audit import evaluate
    from remanence.unlearning import FoldTargets, make_method

    split = task.split(rm.ForgetSet("f", task.train.ids[:30]))
    targets = {"targets": str(tmp_path / "targets")}
    FoldTargets.from_folds(task.train, [(np.ones(120, bool), y)], losses=np.arange(120.0)).write(
        tmp_path / "targets"
    )
    own = {
        "scrub": {"max_epochs": 1},
        "out_of_fold": targets,
        "routed": targets | {"easy": 10.0, "hard": 20.0},
    }
    for name in rm.METHODS:
        model, _ = fit_model(task, task.train, seed=0)
        options = {"epochs": 2, "learning_rate": 0.01} | own.get(name, {})
        for _ in make_method(name, options, RECIPE)(model, split, seed=1):
            pass
        evaluation = evaluate(model, split)
        for metric in ("ua", "ra", "test", "mia", "mia_loss", "mia_confidence", "log_odds"):
            assert np.isfinite(rm.METRICS[metric](evaluation)), (name, metric)
        with pytest.raises(rm.InputError, match="not classes"):
            rm.METRICS["mia_entropy"](evaluation)


def test_a_task_without_right_answers_says_so() -> None:
    from remanence.audit import evaluate

    items = Items(*torch.rand(30, 5))
    auto = rm.Task(lambda: nn.Linear(5, 5), items, items, RECIPE, loss=lambda out, x: (out - x).abs().sum(1))
    evaluation = evaluate(auto.new_model(0), auto.split(rm.ForgetSet("f", auto.train.ids[:5])))
    with pytest.raises(rm.InputError, match="`correct`"):
        rm.METRICS["ua"](evaluation)
    assert np.isfinite(rm.METRICS["log_odds"](evaluation))


# What a user may get wrong: one sentence each.


def test_a_loss_that_averages_is_refused() -> None:
    task = own_task(loss=nn.functional.cross_entropy)
    with pytest.raises(rm.InputError, match="one number per example"):
        task.check()


def test_a_fit_that_does_nothing_is_refused() -> None:
    def idle(model: nn.Module, dataset: Dataset[Any], *, seed: int, steps: int | None = None) -> None:
        nn.init.zeros_(next(model.parameters()))

    def frozen(model: nn.Module, dataset: Any, *, seed: int, steps: int | None = None) -> None:
        dataset[0]

    def another(model: nn.Module, dataset: Any, *, seed: int, steps: int | None = None) -> nn.Module:
        fit(model, dataset, seed=seed)
        return small()

    for function, reason in ((idle, "read nothing"), (frozen, "not changed"), (another, "another one")):
        task = own_task(fit=function)
        with pytest.raises(rm.InputError, match=reason):
            fit_model(task, task.train, seed=0)


def test_a_fit_with_worker_processes_has_read_its_data() -> None:
    def parallel(model: nn.Module, dataset: Dataset[Any], *, seed: int, steps: int | None = None) -> None:
        for inputs, labels in DataLoader(dataset, 40, num_workers=1):
            nn.functional.cross_entropy(model(inputs), labels).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(0.1 * parameter.grad)  # type: ignore[operator]

    task = own_task(fit=parallel)
    _, steps = fit_model(task, task.train, seed=0)
    assert steps == 160 // task.recipe.batch_size


def test_what_a_task_refuses() -> None:
    train, test = pictures()
    with pytest.raises(rm.InputError, match="`recipe` or `fit`"):
        rm.Task(small, train, test)
    with pytest.raises(rm.InputError, match="empty"):
        rm.Task(small, train, TensorDataset(torch.zeros(0, 2), torch.zeros(0)), RECIPE)
    with pytest.raises(rm.InputError, match=r"labels up to 9"):
        own_task(model=lambda: mlp(in_features=64, hidden=(4,), num_classes=3)).check()
    with pytest.raises(rm.InputError, match="must take the inputs"):
        own_task(model=lambda: nn.Linear(3, 10)).check()
    with pytest.raises(rm.InputError, match=r"torch.nn.Module"):
        own_task(model=lambda: 3).new_model(0)
    with pytest.raises(rm.errors.UnknownNameError, match="optimizer named"):
        rm.Recipe(epochs=1, learning_rate=0.1, optimizer="adamv")

    class Noisy(Items):
        def __getitem__(self, row: int) -> Any:
            return torch.rand(3), row % 2

    with pytest.raises(rm.InputError, match="same at every read"):
        rm.Task(small, Noisy(*range(20)), test, RECIPE)


def test_a_data_set_that_changes_is_refused() -> None:
    items = named(30, 0)
    task = rm.Task(Bag, items, named(10, 1), RECIPE)
    items.items = items.items[::-1]
    with pytest.raises(rm.errors.DataError, match="keep its order"):
        next(task.train.batches(8))
    items.items = items.items[::-1][:20]
    with pytest.raises(rm.errors.DataError, match="keep its 30 examples"):
        next(task.train.batches(8))


def test_the_recorder_leaves_other_folders_alone(tmp_path: Path) -> None:
    task = own_task(fit=None, recipe=RECIPE)
    options: dict[str, Any] = {"task": task, "total_steps": 10, "checkpoints": 1}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "rows").mkdir()
    (tmp_path / "mine" / "rows" / "thesis.txt").write_text("years of work")
    with pytest.raises(rm.errors.RunFolderError, match=r"holds rows/thesis.txt"):
        rm.Recorder(task.new_model(0), out=tmp_path / "mine", **options)
    assert (tmp_path / "mine" / "rows" / "thesis.txt").read_text() == "years of work"
    model, _ = fit_model(task, task.train, seed=0)
    rm.import_run(task, model.state_dict(), out=tmp_path / "run")
    with pytest.raises(rm.errors.RunFolderError, match="finished run"):
        rm.Recorder(task.new_model(0), out=tmp_path / "run", **options)
    with pytest.raises(rm.InputError, match="must agree"):
        mechanism = rm.Mechanism(sigma=1, sampling_rate=0.1, steps=1000, batch_size=16)
        rm.Recorder(task.new_model(0), mechanism=mechanism, **options)
    with pytest.raises(rm.InputError, match="Give the `mechanism`"):
        rm.Recorder(small(), pictures()[0], total_steps=3)


def test_batch_norm_and_the_optimizer_are_reasons(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.Linear(16, 10))
    mechanism = rm.Mechanism(
        sigma=1,
        sampling_rate=0.1,
        steps=2,
        batch_size=16,
        assumed=False,
        sampling="poisson",
        denominator="fixed",
    )
    recorder = rm.Recorder(
        model,
        pictures()[0],
        total_steps=2,
        checkpoints=1,
        mechanism=mechanism,
        optimizer=torch.optim.AdamW(model.parameters()),
        departures=["Training used mixup."],
    )
    recorder.step()
    recorder.step()
    losses = rm.theory.privacy_loss(recorder.trace())
    assert losses.status is rm.Status.HEURISTIC
    reasons = " ".join(losses.reasons)
    assert all(word in reasons for word in ("BatchNorm", "AdamW", "mixup"))


# Models trained elsewhere.


def test_weights_of_the_last_month_become_a_run(tmp_path: Path) -> None:
    task = own_task()
    model, _ = fit_model(task, task.train, seed=0)
    saved = tmp_path / "model.pt"
    torch.save(
        {"state_dict": {f"module._orig_mod.{name}": value for name, value in model.state_dict().items()}},
        saved,
    )
    run = rm.import_run(task, saved, out=tmp_path / "run")
    for a, b in zip(run.model().parameters(), model.parameters(), strict=True):
        assert torch.equal(a, b)
    table = run.scores()
    assert ONE_MODEL in table.column("privacy_loss").reasons
    new = run.unlearn(task.train.ids[:20], "finetune", out=tmp_path / "new", steps=3)
    assert new.removed.tolist() == task.train.ids[:20].tolist()
    assert {finding.metric.name for finding in new.audit(task.train.ids[:20]).findings} >= {"ua", "mia"}


def test_several_checkpoints_become_the_trace(tmp_path: Path) -> None:
    task = own_task(fit=None, recipe=RECIPE)
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    for step in (0, 4, 10):
        torch.save(task.new_model(step).state_dict(), folder / f"model-{step}.pt")
    past = PastTraining(batch_size=20, total_steps=12)
    trace = rm.import_run(task, checkpoints=folder, out=tmp_path / "run", past=past).trace()
    assert trace.steps.tolist() == [0, 4, 10]
    assert (trace.mechanism.steps, trace.mechanism.batch_size) == (12, 20)
    expected = rm.example_gradient_norms(task.new_model(10), *task.train.batch(torch.arange(5)))
    np.testing.assert_allclose(trace.norms[-1, :5], expected.detach().numpy(), rtol=1e-5)


def test_weights_that_do_not_fit(tmp_path: Path) -> None:
    task = own_task()
    other = mlp(in_features=64, hidden=(9,), num_classes=10).state_dict()
    with pytest.raises(rm.errors.RunFolderError, match="of shape"):
        rm.import_run(task, other, out=tmp_path / "run")
    with pytest.raises(rm.errors.RunFolderError, match="they lack"):
        rm.import_run(task, {}, out=tmp_path / "run")
    (tmp_path / "model.pt").write_bytes(b"PK\x03\x04 cut off")
    with pytest.raises(rm.errors.RunFolderError, match="cannot be read"):
        rm.import_run(task, tmp_path / "model.pt", out=tmp_path / "run")
    with pytest.raises(rm.errors.RunFolderError, match="does not exist"):
        rm.import_run(task, tmp_path / "absent.pt", out=tmp_path / "run")
    with pytest.raises(rm.InputError, match="`weights` or `checkpoints`"):
        rm.import_run(task, out=tmp_path / "run")
    assert not (tmp_path / "run").exists() or not any((tmp_path / "run").iterdir())


def test_a_run_knows_its_data(tmp_path: Path) -> None:
    task = own_task()
    model, _ = fit_model(task, task.train, seed=0)
    rm.import_run(task, model.state_dict(), out=tmp_path / "run")
    train, test = pictures(150)
    others = rm.open_run(tmp_path / "run", task=rm.Task(small, train, test, fit=fit))
    with pytest.raises(rm.errors.DataError, match="data have changed or are others"):
        others.model()
    nobody = rm.open_run(tmp_path / "run")
    with pytest.raises(rm.errors.RunFolderError, match="open it with its task"):
        nobody.model()


@pytest.mark.parametrize("by", ["recipe", "fit"])
def test_a_task_is_trained_into_a_run(tmp_path: Path, by: str) -> None:
    task = own_task(**({"fit": None, "recipe": RECIPE} if by == "recipe" else {}))
    run = rm.train_run(task, tmp_path / "run", seed=4)
    trained, _ = fit_model(task, task.train, seed=4)
    for a, b in zip(run.model().parameters(), trained.parameters(), strict=True):
        assert torch.equal(a, b)
    assert len(run.trace().steps) > 1 if by == "recipe" else len(run.trace().steps) == 1
    again = rm.train_run(task, tmp_path / "run", seed=4, resume=True)
    assert again.folder.digest() == run.folder.digest()


class CountsReaders(Items):
    """Counts the items that worker processes of a loader read."""

    def __init__(self, *items: Any) -> None:
        super().__init__(*items)
        self.read_by_workers = torch.zeros(1, dtype=torch.int64).share_memory_()

    def __getitem__(self, row: int) -> Any:
        self.read_by_workers += get_worker_info() is not None
        return super().__getitem__(row)


def test_reading_ahead_changes_nothing() -> None:
    ends = []
    for workers in (0, 1):
        data = CountsReaders(*named(50, 0).items)
        task = rm.Task(Bag, data, named(10, 1), RECIPE, workers=workers)
        recipe = rm.Recipe(epochs=2, learning_rate=0.1, batch_size=16, accumulate=2)
        training = Training(task.new_model(0), task.train, recipe, seed=1)
        for step in training.steps():
            if step == 3:
                training.step = 1  # as after a restored checkpoint
                break
        for _ in training.steps():
            pass
        ends.append(torch.cat([p.detach().flatten() for p in training.model.parameters()]))
        assert (int(data.read_by_workers) >= 50 * recipe.epochs) == bool(workers)
    assert torch.equal(*ends)


def test_other_labels_do_not_change_the_class_names_and_targets_are_read_once() -> None:
    class Counts(Items):
        reads = 0

        def __getitem__(self, row: int) -> Any:
            self.reads += 1
            return super().__getitem__(row)

    data = Counts(*named(300, 0).items)
    examples = rm.Task(Bag, data, named(10, 1), RECIPE).train
    before = data.reads
    relabelled = examples.with_labels(torch.zeros(300, dtype=torch.int64))
    assert relabelled.class_names == ("0", "1", "2")
    assert data.reads - before < 400  # all rows once, and a few to check their order
    before = data.reads
    assert examples.take(examples.ids[:5]).label_texts() == ["0", "1", "2", "0", "1"]
    assert data.reads - before < 50


def test_a_module_is_no_function_that_builds_one() -> None:
    train, test = pictures()
    with pytest.raises(rm.InputError, match="`model` must be a function that builds a new, untrained module"):
        rm.Task(nn.Linear(64, 10), train, test, RECIPE)


def test_labels_beyond_the_outputs_are_refused_before_a_run_is_begun(tmp_path: Path) -> None:
    train, test = pictures()
    task = rm.Task(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 2)), train, test, RECIPE)
    with pytest.raises(rm.InputError, match="an output for every class of `train`"):
        rm.train_run(task, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_labels_that_are_words_are_one_sentence(tmp_path: Path) -> None:
    train, test = pictures()
    words = Items(*[(train[row][0], "cat") for row in range(20)])
    task = rm.Task(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), words, test, RECIPE)
    with pytest.raises(
        rm.InputError, match="The loss must take the model's outputs and the targets of `train`"
    ):
        rm.train_run(task, tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("broken", "Your own code raised ZeroDivisionError in {file}, line 4: row 3 is broken"),
        ("build", "Task 'raises_here:build' must be callable without arguments"),
    ],
)
def test_an_error_of_the_users_code_is_not_called_a_defect(
    name: str,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "raises_here.py"
    file.write_text(
        "import torch, remanence as rm\n"
        "class Broken(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 9\n"
        "    def __getitem__(self, row): raise ZeroDivisionError('row 3 is broken')\n"
        "def broken(): return rm.Task(build, Broken(), Broken(), rm.Recipe(epochs=1, learning_rate=0.1))\n"
        "def build(width): return torch.nn.Linear(width, 2)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    torch.save({}, tmp_path / "model.pt")
    out = tmp_path / "run"
    words = [
        "import",
        "--task",
        f"raises_here:{name}",
        "--weights",
        str(tmp_path / "model.pt"),
        "--out",
        str(out),
    ]
    assert command(words) == 2
    assert sentence.format(file=file) in " ".join(capsys.readouterr().err.split())
    assert not out.exists()


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("task = make()", "script:task"),
        ("task: object = make()", "script:task"),
        ("if __name__ == '__main__':\n    task = make()", ""),
    ],
)
def test_a_task_of_a_script_is_found_if_an_import_makes_it(
    source: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import ModuleType

    from remanence.tasks.importing import find_import_path

    file = tmp_path / "script.py"
    file.write_text(source)
    main = ModuleType("__main__")
    main.__file__, main.__dict__["task"] = str(file), own_task()
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert find_import_path(main.__dict__["task"]) == path


def test_a_list_means_the_training_data_if_both_sides_count_from_zero(tmp_path: Path) -> None:
    from remanence.requests import read_request

    task = own_task()
    model, _ = fit_model(task, task.train, seed=0)
    run = rm.import_run(task, model.state_dict(), out=tmp_path / "run")
    assert set(task.test.ids.tolist()) < set(task.train.ids.tolist())
    (tmp_path / "request.csv").write_text("id\n17\n42\n")
    assert read_request(tmp_path / "request.csv", run).forget_set.ids.tolist() == [17, 42]
    (tmp_path / "request.csv").write_text("id\n17\n9000\n")
    with pytest.raises(rm.errors.DataError, match="no example has the id '9000'"):
        read_request(tmp_path / "request.csv", run)
