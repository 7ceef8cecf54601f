import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import remanence as rm
from remanence.data import Examples, digits
from remanence.models import small_conv
from remanence.storage import open_folder
from remanence.tasks import generator
from remanence.training import (
    RECIPES,
    Checkpoints,
    Recipe,
    Recorder,
    Recording,
    Training,
    placed_steps,
    train_and_record,
    train_steps,
)


def few(n: int = 48) -> Examples:
    train, _ = digits()
    return train.take(train.ids[:n])


def model() -> nn.Module:
    torch.manual_seed(0)
    return small_conv(width=4)


def weights(trained: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trained.parameters()])


RECIPE = Recipe(epochs=2, learning_rate=0.05, batch_size=20, schedule="cosine")


def test_the_loop_is_plain_sgd() -> None:
    """Against the loop written out by hand with torch's own optimizer and scheduler."""
    ours, theirs, data = model(), model(), few()
    assert list(train_steps(ours, data, RECIPE, seed=5)) == list(range(1, 7))
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)
    for epoch in range(2):
        order = torch.randperm(48, generator=generator(5, "epoch", epoch))
        for batch in (order[:20], order[20:40], order[40:]):
            optimizer.zero_grad()
            nn.functional.cross_entropy(theirs(data.inputs[batch]), data.labels[batch]).backward()
            optimizer.step()
            schedule.step()
    torch.testing.assert_close(weights(ours), weights(theirs), rtol=1e-5, atol=1e-7)


def test_noise_is_added_to_the_gradient_at_its_scale() -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.zeros(20_000))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.zeros(len(x), 10) + 0.0 * self.w.sum()

    flat = Flat()
    recipe = Recipe(epochs=1, learning_rate=1.0, batch_size=48, momentum=0.0, weight_decay=0.0, noise=0.25)
    list(train_steps(flat, few(), recipe, seed=0))
    assert flat.w.std().item() == pytest.approx(0.25, rel=0.05)


def test_a_diverged_loss_names_the_step_and_ids() -> None:
    data = few()
    broken = Examples(data.ids, data.inputs * float("nan"), data.labels, data.class_names)
    with pytest.raises(rm.errors.NumericalError, match="at step 0"):
        list(train_steps(model(), broken, RECIPE, seed=0))


def test_recording_changes_nothing() -> None:
    data, plain, watched = few(), model(), model()
    for _ in train_steps(plain, data, RECIPE, seed=1):
        pass
    state = torch.get_rng_state()
    recorder = Recorder(
        watched,
        data,
        total_steps=6,
        checkpoints=3,
        placement="even",
        mechanism=RECIPE.mechanism(48, assumed_sigma=0.1),
    )
    for _ in train_steps(watched, data, RECIPE, seed=1):
        recorder.step()
    assert torch.equal(weights(plain), weights(watched))
    assert torch.equal(state, torch.get_rng_state())
    trace = recorder.finish()
    assert trace.steps.tolist() == [0, 2, 4, 6]
    assert trace.mechanism.assumed


def test_the_trace_holds_the_norms_of_the_model_at_that_step() -> None:
    data, watched = few(8), model()
    start = copy.deepcopy(watched)
    recipe = Recipe(epochs=1, learning_rate=0.05, batch_size=4)
    recorder = Recorder(
        watched,
        data,
        total_steps=2,
        checkpoints=1,
        placement="even",
        mechanism=recipe.mechanism(8, assumed_sigma=0.1),
    )
    for _ in train_steps(watched, data, recipe, seed=1):
        recorder.step()
    trace = recorder.finish()
    for row, moment in enumerate((start, watched)):
        for i in range(8):
            moment.zero_grad()
            loss = nn.functional.cross_entropy(moment(data.inputs[i : i + 1]), data.labels[i : i + 1])
            loss.backward()
            norm = torch.cat([p.grad.flatten() for p in moment.parameters()]).norm().item()  # type: ignore[union-attr]
            assert trace.norms[row, i] == pytest.approx(norm, rel=1e-4)
    probabilities = watched(data.inputs).softmax(1).detach().numpy()
    truth = np.eye(10)[data.labels.numpy()]
    np.testing.assert_allclose(trace.confidence[1], (probabilities * truth).sum(1), rtol=1e-5)
    np.testing.assert_allclose(
        trace.error[1], np.linalg.norm(probabilities - truth, axis=1), rtol=1e-4, atol=1e-6
    )


def test_a_run_cut_short_has_no_trace() -> None:
    recorder = Recorder(
        model(),
        few(),
        total_steps=6,
        checkpoints=3,
        placement="even",
        mechanism=RECIPE.mechanism(48, assumed_sigma=0.1),
    )
    with pytest.raises(rm.InputError, match="must reach step 6"):
        recorder.finish()


def test_checkpoints_are_even_and_end_at_the_end() -> None:
    assert placed_steps(100, 4).tolist() == [0, 25, 50, 75, 100]
    assert len(set(placed_steps(36, 35).tolist())) == 36
    with pytest.raises(rm.InputError, match="between 1 and"):
        placed_steps(10, 11)


@pytest.mark.parametrize(
    "change", [{"epochs": 0}, {"learning_rate": -1}, {"momentum": -0.1}, {"schedule": "step"}]
)
def test_a_wrong_recipe_is_refused_by_name(change: dict[str, object]) -> None:
    with pytest.raises(rm.InputError, match=f"`{next(iter(change))}`"):
        Recipe(**{"epochs": 1, "learning_rate": 0.1, **change})  # type: ignore[arg-type]


def test_milestones_drop_the_learning_rate_at_their_epochs() -> None:
    paper = RECIPES["paper"]
    rates = [paper.learning_rate_at(epoch * 10, 10) for epoch in (0, 79, 80, 119, 120, 149)]
    assert rates == pytest.approx([0.01, 0.01, 0.001, 0.001, 0.0001, 0.0001])
    with pytest.raises(rm.InputError, match="`milestones` must be given with"):
        Recipe(epochs=1, learning_rate=0.1, milestones=(3,))


class _Flat(nn.Module):
    """A model whose loss gradient is zero: what moves it is noise alone."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(20_000))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(x), 10) + 0.0 * self.w.sum()


def test_langevin_noise_has_the_scale_of_langevin_dynamics() -> None:
    flat, eta, sigma = _Flat(), 0.04, 0.5
    recipe = Recipe(
        epochs=1, learning_rate=eta, batch_size=48, momentum=0, weight_decay=0, noise=sigma, langevin=True
    )
    list(train_steps(flat, few(), recipe, seed=0))
    assert flat.w.std().item() == pytest.approx((2 * eta) ** 0.5 * sigma, rel=0.05)
    assert recipe.mechanism(48, assumed_sigma=9).sigma == pytest.approx(sigma * (2 / eta) ** 0.5)


@pytest.mark.parametrize("decay", [0.1, 3.0])
def test_the_mechanism_of_langevin_noise_has_its_smallest_sigma(decay: float) -> None:
    """A learning rate that grows makes the noise on the gradient smaller than at the start."""
    recipe = Recipe(
        epochs=4,
        learning_rate=0.1,
        batch_size=12,
        schedule="milestones",
        milestones=(1, 3, 9),
        decay=decay,
        noise=0.2,
        langevin=True,
    )
    smallest = min(recipe.noise_at(recipe.learning_rate_at(step, 4)) for step in range(16))
    assert recipe.mechanism(48, assumed_sigma=9).sigma == pytest.approx(smallest)


def test_projection_keeps_the_weights_in_the_ball() -> None:
    ball = model()
    for _ in train_steps(
        ball, few(), Recipe(epochs=1, learning_rate=0.05, batch_size=20, radius=0.5), seed=0
    ):
        assert weights(ball).norm().item() <= 0.5 + 1e-5


def test_poisson_batches_have_the_right_law_and_a_fixed_denominator() -> None:
    data = few()
    recipe = Recipe(epochs=400, learning_rate=0.1, batch_size=12, sampling="poisson")
    training = Training(model(), data, recipe, seed=3)
    sizes, hits = [], np.zeros(len(data))
    for step in range(1600):
        [term] = training.objective.terms(step)
        batch = term.stream.rows(term.index).numpy()
        sizes.append(len(batch))
        hits[batch] += 1
    assert np.mean(sizes) == pytest.approx(12, abs=0.3)
    assert np.var(sizes) == pytest.approx(48 * 0.25 * 0.75, rel=0.15)
    assert np.abs(hits / 1600 - 0.25).max() < 0.06
    mechanism = recipe.mechanism(48, assumed_sigma=0.1)
    assert (mechanism.sampling, mechanism.denominator, mechanism.batch_size) == ("poisson", "fixed", 12)


def test_a_poisson_step_divides_by_the_fixed_batch_size() -> None:
    data, start = few(), model()
    recipe = Recipe(
        epochs=1, learning_rate=1.0, batch_size=12, momentum=0, weight_decay=0, sampling="poisson"
    )
    trained = copy.deepcopy(start)
    training = Training(trained, data, recipe, seed=7)
    batch = training.objective.terms(0)[0].stream.rows(0)
    next(training.steps())
    loss = nn.functional.cross_entropy(start(data.inputs[batch]), data.labels[batch], reduction="sum") / 12
    gradients = torch.autograd.grad(loss, list(start.parameters()))
    moved = weights(start) - torch.cat([g.flatten() for g in gradients])
    torch.testing.assert_close(weights(trained), moved, rtol=1e-4, atol=1e-6)


def test_accumulation_changes_rounding_only() -> None:
    whole, parts, data = model(), model(), few()
    list(train_steps(whole, data, RECIPE, seed=2))
    list(train_steps(parts, data, replace(RECIPE, accumulate=3), seed=2))
    torch.testing.assert_close(weights(whole), weights(parts), rtol=1e-4, atol=1e-6)


def test_what_the_caller_does_between_steps_changes_nothing() -> None:
    """Even with dropout, which draws from the global random state in ordinary loops."""
    results = []
    for disturb in (False, True):
        torch.manual_seed(0)
        dropped = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 10))
        for _ in train_steps(dropped, few(), RECIPE, seed=4):
            if disturb:
                torch.rand(17)
                dropped.eval()
        results.append(weights(dropped))
    assert torch.equal(*results)


@pytest.mark.parametrize("stop", [1, 3, 4])
def test_a_resumed_run_has_the_same_bits(stop: int, tmp_path: Path) -> None:
    """Stop after some steps, build everything anew, restore, go on: weights and trace of an undisturbed run."""
    data = few()
    recipe = replace(RECIPE, noise=0.01, epochs=2)

    def batch_norm_model() -> nn.Module:
        torch.manual_seed(1)
        return nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)
        )

    def start(folder: Path) -> tuple[Training, Checkpoints, Recorder]:
        training = Training(batch_norm_model(), data, recipe, seed=9)
        checkpoints = Checkpoints(folder / "checkpoints")
        checkpoints.restore(training)
        recorder = Recorder(
            training.model,
            data,
            total_steps=training.total_steps,
            checkpoints=3,
            placement="even",
            mechanism=recipe.mechanism(len(data), assumed_sigma=1),
            out=folder,
            start=training.step,
        )
        return training, checkpoints, recorder

    def go(folder: Path, until: int) -> tuple[Training, Recorder]:
        training, checkpoints, recorder = start(folder)
        for step in training.steps():
            recorder.step()
            if step % 2 == 0:
                checkpoints.save(training, [])
            if step == until:
                break
        return training, recorder

    quiet, quiet_recorder = go(tmp_path / "quiet", 6)
    go(tmp_path / "noisy", stop)
    resumed, resumed_recorder = go(tmp_path / "noisy", 6)
    for name, tensor in quiet.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name]), name
    one, other = quiet_recorder.finish(), resumed_recorder.finish()
    assert np.array_equal(one.norms, other.norms)
    assert np.array_equal(one.confidence, other.confidence)
    assert open_folder(tmp_path / "quiet").digest() == open_folder(tmp_path / "noisy").digest()


def test_old_checkpoints_thin_out_and_a_damaged_one_is_passed_over(tmp_path: Path) -> None:
    training = Training(model(), few(), RECIPE, seed=0)
    checkpoints = Checkpoints(tmp_path)
    for _ in training.steps():
        checkpoints.save(training, [])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000000005", "step-000000006"]
    (tmp_path / "step-000000006" / "weights.safetensors").write_bytes(b"no")
    again = Training(model(), few(), RECIPE, seed=0)
    checkpoints.restore(again)
    assert again.step == 5


def test_foreign_weights_are_refused(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(Training(model(), few(), RECIPE, seed=0), [])
    with pytest.raises(rm.errors.RunFolderError, match="another model's weights"):
        checkpoints.restore(Training(small_conv(width=8), few(), RECIPE, seed=0))


def test_a_run_does_not_go_on_with_other_data(tmp_path: Path) -> None:
    checkpoints, data = Checkpoints(tmp_path), few()
    checkpoints.save(Training(model(), data, RECIPE, seed=0), [])
    relabelled = Examples(data.ids, data.inputs, (data.labels + 1) % 10, data.class_names)
    with pytest.raises(rm.errors.DataError, match="was trained on other data"):
        checkpoints.restore(Training(model(), relabelled, RECIPE, seed=0))


def test_log_placement_is_dense_early_and_always_as_many() -> None:
    assert placed_steps(1000, 4, "log").tolist() == [0, 1, 10, 100, 1000]
    for total, n in ((10, 10), (12, 10), (100, 35), (7, 1)):
        steps = placed_steps(total, n, "log")
        assert len(steps) == n + 1
        assert (np.diff(steps) > 0).all()
        assert steps[-1] == total


def test_a_recorder_of_some_ids_records_those() -> None:
    data = few()
    recorder = Recorder(
        model(),
        data,
        total_steps=6,
        checkpoints=1,
        placement="even",
        mechanism=RECIPE.mechanism(48, assumed_sigma=1),
        ids=data.ids[5:9],
    )
    for _ in range(6):
        recorder.step()
    assert recorder.finish().ids.tolist() == data.ids[5:9].tolist()


def test_a_recording_says_what_is_recorded() -> None:
    """`train_and_record` is the loop and the recorder of this file, put together."""
    data, by_hand, recorded = few(), model(), model()
    recorder = Recorder(
        by_hand,
        data,
        total_steps=6,
        checkpoints=3,
        placement="even",
        mechanism=RECIPE.mechanism(48, assumed_sigma=0.3, model=by_hand),
    )
    for _ in train_steps(by_hand, data, RECIPE, seed=1):
        recorder.step()
    training, steps = Training(recorded, data, RECIPE, seed=1), []
    kept = train_and_record(training, Recording(3, "even", sigma=0.3), after_step=steps.append)
    assert kept is not None
    one, other = recorder.trace(), kept.trace()
    assert steps == list(range(1, 7))
    assert one.steps.tolist() == other.steps.tolist() == [0, 2, 4, 6]
    assert np.array_equal(one.norms, other.norms)
    assert one.mechanism == other.mechanism
    assert (other.mechanism.sigma, other.mechanism.assumed) == (0.3, True)
    assert torch.equal(weights(by_hand), weights(recorded))


def test_nothing_is_recorded_unasked() -> None:
    training = Training(model(), few(), RECIPE, seed=1)
    assert train_and_record(training) is None
    assert training.step == 6


def test_a_recording_goes_on_with_a_restored_run(tmp_path: Path) -> None:
    recording = Recording(3, "even", out=tmp_path)
    checkpoints = Checkpoints(tmp_path / "checkpoints")

    class StopError(Exception):
        pass

    training = Training(model(), few(), RECIPE, seed=1)

    def stop(step: int) -> None:
        if step == 4:
            checkpoints.save(training, [])
            raise StopError

    with pytest.raises(StopError):
        train_and_record(training, recording, after_step=stop)
    resumed = Training(model(), few(), RECIPE, seed=1)
    checkpoints.restore(resumed)
    kept = train_and_record(resumed, recording)
    whole = train_and_record(Training(model(), few(), RECIPE, seed=1), Recording(3, "even"))
    assert kept is not None
    assert whole is not None
    assert np.array_equal(kept.trace().norms, whole.trace().norms)
