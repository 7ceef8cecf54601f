"""What every unlearning method promises, checked on all of them."""

import copy
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import remanence as rm
from remanence.data import Examples, Split, digits
from remanence.models import small_conv
from remanence.training import Checkpoints, Recipe, Training
from remanence.unlearning import METHODS, FoldTargets, make_method
from remanence.unlearning.method import Method
from remanence.unlearning.random_label import relabel
from remanence.unlearning.salun import salient_weights

READS: dict[str, set[str]] = {
    "retrain": {"retain"},
    "finetune": {"retain"},
    "noisy_finetune": {"retain"},
    "l1_sparse": {"retain"},
    "gradient_ascent": {"forget"},
    "neggrad_plus": {"retain", "forget"},
    "random_label": {"retain", "forget"},
    "scrub": {"retain", "forget"},
    "salun": {"retain", "forget"},
    "reset": {"retain", "forget"},
    "shrink_perturb": {"retain"},
    "out_of_fold": {"retain", "forget"},
    "routed": {"retain", "forget"},
    "msg": {"retain", "forget"},
    "del": {"retain", "forget"},
}
OPTIONS: dict[str, dict[str, Any]] = {"scrub": {"max_epochs": 1}, "reset": {"distillation": 0.3}}
TRAINED = Recipe(epochs=2, learning_rate=0.05, batch_size=20)
EVERY = pytest.mark.parametrize("name", METHODS)


@pytest.fixture(scope="module", autouse=True)
def targets(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Outputs of models that never saw the examples, for out_of_fold."""
    write_targets(tmp_path_factory.mktemp("folds") / "targets")


def write_targets(folder: Path) -> None:
    train, random = split().train, torch.Generator().manual_seed(0)
    halves = np.arange(len(train)) % 2 == 0
    folds = [(half, torch.randn(int(half.sum()), 10, generator=random)) for half in (halves, ~halves)]
    if not folder.exists():
        FoldTargets.from_folds(train, folds, losses=np.arange(len(train)) / 10).write(folder)
    OPTIONS["out_of_fold"] = {"targets": str(folder)}
    OPTIONS["routed"] = {"targets": str(folder), "easy": 1.0, "hard": 2.0}


def method(name: str, **changes: Any) -> Method:
    return make_method(name, {"epochs": 2, "lr": 0.02} | OPTIONS.get(name, {}) | changes, TRAINED)


def split() -> Split:
    train, test = digits()
    train = train.take(train.ids[:90])
    return Split(train, test.take(test.ids[:20]), rm.ForgetSet("f", train.ids[5:30]))


def model() -> nn.Module:
    torch.manual_seed(0)
    return small_conv(width=4)


def batch_norm_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(144, 10)
    )


def state(of: nn.Module) -> Tensor:
    return torch.cat([value.detach().flatten().double() for value in of.state_dict().values()])


def unlearned(name: str, data: Split, start: nn.Module | None = None, seed: int = 3) -> nn.Module:
    changed = start or model()
    for _ in method(name)(changed, data, seed=seed):
        pass
    return changed


def spoiled(data: Split, part: Examples) -> Split:
    """The same split with NaN for the inputs of one part."""
    inputs = data.train.inputs.clone()
    inputs[torch.from_numpy(data.train.positions(part.ids))] = float("nan")
    train = Examples(data.train.ids, inputs, data.train.labels, data.train.class_names)
    return Split(train, data.test, data.forget_set)


def test_the_table_is_complete() -> None:
    assert READS.keys() == METHODS.keys()


@EVERY
def test_it_reads_what_it_may_and_nothing_else(name: str) -> None:
    data, start = split(), batch_norm_model()
    for part in ("retain", "forget"):
        worse = spoiled(data, getattr(data, part))
        if part in READS[name]:
            # the fingerprints of the folds see other data before the loss does
            problem = (
                rm.errors.DataError if (name, part) == ("out_of_fold", "forget") else rm.errors.NumericalError
            )
            with pytest.raises(problem, match=r"The loss became nan|trained on other data"):
                unlearned(name, worse, copy.deepcopy(start))
        else:
            clean = unlearned(name, data, copy.deepcopy(start))
            assert torch.equal(state(unlearned(name, worse, copy.deepcopy(start))), state(clean))


@EVERY
def test_the_split_is_left_alone(name: str) -> None:
    data = split()
    before = [part.digest() for part in (data.train, data.test, data.forget, data.retain)]
    unlearned(name, data)
    assert [part.digest() for part in (data.train, data.test, data.forget, data.retain)] == before


@EVERY
def test_it_is_its_seed_whatever_happens_between_steps(name: str) -> None:
    data, start = split(), batch_norm_model()
    quiet = unlearned(name, data, copy.deepcopy(start))
    disturbed = copy.deepcopy(start)
    for step in method(name)(disturbed, data, seed=3):
        torch.manual_seed(step)
        disturbed.eval()
        with torch.enable_grad():
            disturbed(data.test.inputs).sum().backward()
    assert torch.equal(state(disturbed), state(quiet))
    other = unlearned(name, data, copy.deepcopy(start), seed=4)
    assert not torch.equal(state(other), state(quiet))


@EVERY
def test_it_counts_its_steps_and_stops_where_asked(name: str) -> None:
    data = split()
    training = method(name).begin(model(), data, seed=0)
    assert list(training.steps()) == list(range(1, training.total_steps + 1))
    short, again = model(), model()
    steps = method(name)(short, data, seed=0)
    assert [next(steps), next(steps)] == [1, 2]
    at_two = state(short).clone()
    for step in method(name)(again, data, seed=0):
        if step == 2:
            break
    assert torch.equal(state(again), at_two)
    assert torch.equal(state(short), at_two)


@EVERY
def test_a_diverged_run_is_one_sentence(name: str) -> None:
    with pytest.raises(rm.errors.NumericalError, match=r"The loss became .* at step \d+"):
        for _ in method(name, lr=1e30, epochs=3)(model(), split(), seed=0):
            pass


@EVERY
def test_batch_norm_follows_the_batches_it_steps_on(name: str) -> None:
    """Hardly any learning rate, so the same inputs in training mode must give the same statistics."""
    data, changed = split(), batch_norm_model()
    training = method(name, lr=1e-30, weight_decay=0.0).begin(changed, data, seed=1)
    replayed = copy.deepcopy(changed).train()
    seen: list[Tensor] = []
    changed.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].clone()))
    for _ in training.steps():
        assert changed.training
    with torch.no_grad():  # some methods reset weights in the first step
        for before, after in zip(replayed.parameters(), changed.parameters(), strict=True):
            before.copy_(after)
    for inputs in seen:
        replayed(inputs)
    assert torch.equal(changed[1].running_mean, replayed[1].running_mean)
    assert torch.equal(changed[1].running_var, replayed[1].running_var)
    assert changed[1].num_batches_tracked == len(seen)


@EVERY
def test_what_is_made_of_the_original_leaves_it_alone(name: str) -> None:
    start = batch_norm_model()
    before = state(start).clone()
    method(name).begin(start, split(), seed=1)
    assert torch.equal(state(start), before) == (name != "retrain")
    assert all(parameter.requires_grad and parameter.grad is None for parameter in start.parameters())


@EVERY
def test_killed_and_begun_again_it_ends_with_the_same_bits(name: str, tmp_path: Path) -> None:
    data, start = split(), batch_norm_model()
    whole = unlearned(name, data, copy.deepcopy(start))
    first: Training = method(name).begin(copy.deepcopy(start), data, seed=3)
    for step in first.steps():
        if step == 3:
            Checkpoints(tmp_path).save(first, [])
            break
    second = method(name).begin(copy.deepcopy(start), data, seed=3)
    Checkpoints(tmp_path).restore(second)
    assert second.step == 3
    for _ in second.steps():
        pass
    assert torch.equal(state(second.model), state(whole))


def test_two_processes_unlearn_as_one(tmp_path: Path) -> None:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [*launch, __file__, str(tmp_path), OPTIONS["out_of_fold"]["targets"]],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    for name in METHODS:
        together = torch.load(tmp_path / name, weights_only=True)
        torch.testing.assert_close(together, state(unlearned(name, split())), rtol=1e-5, atol=1e-5)


def test_l1_draws_all_weights_to_zero_and_fades() -> None:
    data = split()
    start = model()
    recipe = Recipe(epochs=2, learning_rate=0.1, batch_size=65, momentum=0.0, weight_decay=0.0)
    plain, sparse = copy.deepcopy(start), copy.deepcopy(start)
    next(METHODS["finetune"](recipe)(plain, data, seed=0))
    steps = make_method("l1_sparse", {"coefficient": 0.5}, recipe)
    steps = replace(steps, recipe=recipe)(sparse, data, seed=0)
    next(steps)
    for begun, one, other in zip(start.parameters(), plain.parameters(), sparse.parameters(), strict=True):
        torch.testing.assert_close(other, one - 0.1 * 0.5 * begun.sign(), atol=1e-6, rtol=1e-5)
    half = copy.deepcopy(sparse)
    before = copy.deepcopy(sparse)
    next(steps)
    term = METHODS["finetune"](recipe).begin(half, data, seed=0)
    term.step = 1
    next(term.steps())
    for begun, one, other in zip(before.parameters(), half.parameters(), sparse.parameters(), strict=True):
        torch.testing.assert_close(other, one - 0.1 * 0.25 * begun.sign(), atol=1e-6, rtol=1e-5)


def test_ascent_climbs_and_the_weighted_sum_is_what_it_says() -> None:
    data, start = split(), model()
    recipe = Recipe(epochs=1, learning_rate=0.1, batch_size=100, momentum=0.0, weight_decay=0.0)

    def gradient(part: Examples) -> tuple[Tensor, ...]:
        loss = nn.functional.cross_entropy(start(part.inputs), part.labels)
        return torch.autograd.grad(loss, list(start.parameters()))

    keep, drop = gradient(data.retain), gradient(data.forget)
    for name, weights in {"gradient_ascent": (0.0, -1.0), "neggrad_plus": (0.9, -0.1)}.items():
        changed = copy.deepcopy(start)
        chosen = make_method(name, {"beta": 0.9} if name == "neggrad_plus" else {}, recipe)
        next(replace(chosen, recipe=recipe)(changed, data, seed=0))
        for before, after, g, h in zip(start.parameters(), changed.parameters(), keep, drop, strict=True):
            expected = before - 0.1 * (weights[0] * g + weights[1] * h)
            torch.testing.assert_close(after, expected, rtol=1e-4, atol=1e-6)


def test_wrong_labels_are_wrong_and_only_on_the_forget_set() -> None:
    data = split()
    found = relabel(data, seed=5)
    assert (found.take(data.forget.ids).labels != data.forget.labels).all()
    assert torch.equal(found.take(data.retain.ids).labels, data.retain.labels)
    assert found.digest() == relabel(data, seed=5).digest()
    assert found.digest() != relabel(data, seed=6).digest()


def test_salun_holds_the_other_weights_to_the_bit() -> None:
    data, start = split(), model()
    salient = salient_weights(start, data.forget, 0.3)
    total = sum(mask.numel() for mask in salient.values())
    assert sum(int(mask.sum()) for mask in salient.values()) == round(0.3 * total)
    gradients = torch.autograd.grad(
        nn.functional.cross_entropy(start(data.forget.inputs), data.forget.labels), list(start.parameters())
    )
    flat = torch.cat([each.abs().flatten() for each in gradients])
    chosen = torch.cat([mask.flatten() for mask in salient.values()])
    assert flat[chosen].min() >= flat[~chosen].max() * (1 - 1e-4)
    changed = copy.deepcopy(start)
    for _ in method("salun", fraction=0.3)(changed, data, seed=0):
        pass
    for name, parameter in changed.named_parameters():
        moved = parameter != dict(start.named_parameters())[name]
        assert not moved[~salient[name]].any()
        assert moved[salient[name]].any() == salient[name].any()


def test_scrub_climbs_first_and_mends_last() -> None:
    data = split()
    training = method("scrub", epochs=3, max_epochs=2).begin(model(), data, seed=0)
    weights = [training.objective.terms(step)[0].weight for step in range(training.total_steps)]
    # 25 to forget in batches of 20: two steps up, then 65 to keep: four down
    assert weights == [-1.0] * 2 + [1.0] * 4 + [-1.0] * 2 + [1.0] * 4 + [1.0] * 4
    batches = [training.objective.terms(step)[0] for step in range(training.total_steps)]
    kept = [term.index for term in batches if term.weight > 0]
    assert kept == list(range(12))
    assert [term.index for term in batches if term.weight < 0] == list(range(4))


def test_scrubs_teacher_is_the_original_to_the_end() -> None:
    data, student = split(), batch_norm_model()
    original = copy.deepcopy(student).eval()
    training = method("scrub", temperature=3.0).begin(student, data, seed=0)
    for _ in training.steps():
        pass
    distance = training.objective.terms(0)[0].loss
    inputs, labels = data.forget.inputs, data.forget.labels
    with torch.no_grad():
        assert (distance(original(inputs), inputs, labels) == 0).all()
        p, q = (net.eval()(inputs).div(3).softmax(dim=1) for net in (original, student))
        expected = 9 * (p * (p / q).log()).sum(dim=1)
        torch.testing.assert_close(distance(student(inputs), inputs, labels), expected, rtol=1e-3, atol=1e-5)
        assert (expected > 0).all()


def test_retraining_owes_nothing_to_the_old_weights() -> None:
    data = split()
    old, other = model(), model()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(7)
    one, two = (state(unlearned("retrain", data, start)) for start in (old, other))
    assert torch.equal(one, two)


def test_retraining_says_which_layer_cannot_be_drawn_anew() -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(64, 10))

        def forward(self, x: Tensor) -> Tensor:
            return x.flatten(1) @ self.w

    with pytest.raises(rm.InputError, match="make_model"):
        METHODS["retrain"](TRAINED).begin(Bare(), split(), seed=0)
    made = METHODS["retrain"](TRAINED, make_model=Bare)  # type: ignore[call-arg]
    assert next(made(Bare(), split(), seed=0)) == 1


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("fine_tune", {}, "Did you mean 'finetune'"),
        (
            "l1_sparse",
            {"coeficient": 1},
            "no option of l1_sparse named 'coeficient'. Did you mean 'coefficient'",
        ),
        ("finetune", {"noise": 0.1}, "no option of finetune named 'noise'"),
        ("finetune", {"lr": "fast"}, "`learning_rate` must be a number; got 'fast'"),
        ("finetune", {"epochs": 2.5}, "`epochs` must be a whole number; got 2.5"),
        ("finetune", {"lr": -1}, "`learning_rate` must be a finite number above 0"),
        ("noisy_finetune", {"noise": 0}, "needs `noise` above 0"),
        ("l1_sparse", {"coefficient": -1.0}, "`coefficient` must not be negative"),
        ("neggrad_plus", {"beta": 1.0}, r"`beta` must be in \(0, 1\)"),
        ("salun", {"fraction": 0}, "`fraction` must be in"),
        ("scrub", {"max_epochs": 9}, "`max_epochs` must be between 1 and the number of epochs, 5; got 9"),
        ("scrub", {"alpha": -1}, "`alpha` must not be negative"),
        ("reset", {"fraction": 0}, r"`fraction` must be in \(0, 1\]; got 0"),
        ("reset", {"distillation": 1.0}, r"`distillation` must be in \[0, 1\); got 1"),
        ("shrink_perturb", {"shrink": 1.0}, r"`shrink` must be in \[0, 1\)"),
        ("shrink_perturb", {"perturb": -1.0}, "`perturb` must not be negative"),
        ("msg", {"fraction": 2}, "`fraction` must be in"),
        ("del", {"fraction": 2}, "`fraction` must be in"),
        ("out_of_fold", {}, "out_of_fold needs `targets`: a folder"),
        ("out_of_fold", {"targets": "folds", "weight": 0}, "`weight` must be a finite number above 0"),
        ("reset", {"make_model": 1}, "no option of reset named 'make_model'"),
    ],
)
def test_wrong_options_are_one_sentence(name: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(rm.InputError, match=sentence):
        make_method(name, options, TRAINED)


def test_what_is_not_said_is_as_in_training() -> None:
    trained = Recipe(
        epochs=9,
        learning_rate=0.3,
        batch_size=7,
        weight_decay=0.25,
        schedule="milestones",
        milestones=(3,),
        noise=0.5,
    )
    plain = make_method("finetune", {"lr": 0.1}, trained).recipe
    assert (plain.batch_size, plain.weight_decay, plain.learning_rate) == (7, 0.25, 0.1)
    assert (plain.epochs, plain.schedule, plain.milestones, plain.noise) == (25, "constant", (), 0.0)
    assert make_method("noisy_finetune", {}, trained).recipe.noise == 0.5
    assert make_method("noisy_finetune", {}, replace(trained, noise=0.0)).recipe.noise > 0
    assert make_method("retrain", {}, trained).recipe == trained


def _every_method_on_this_process(out: Path) -> None:
    from remanence.training import join_process_group

    torch.set_num_threads(1)
    with join_process_group() as ranks:
        assert ranks.size == 2
        for name in METHODS:
            changed = model()
            for _ in method(name)(changed, split(), seed=3, ranks=ranks):
                pass
            if ranks.first:
                torch.save(state(changed), out / name)


if __name__ == "__main__":
    write_targets(Path(sys.argv[2]))
    _every_method_on_this_process(Path(sys.argv[1]))
