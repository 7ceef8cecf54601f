import copy

import numpy as np
import pytest
import torch
from torch import nn

import remanence as rm
from remanence.data import Examples, digits
from remanence.models import small_conv
from remanence.training import Recipe, Recorder, placed_steps, train_steps
from remanence.training.randomness import generator


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
    with pytest.raises(rm.NumericalError, match="at step 0"):
        list(train_steps(model(), broken, RECIPE, seed=0))


def test_recording_changes_nothing() -> None:
    data, plain, watched = few(), model(), model()
    for _ in train_steps(plain, data, RECIPE, seed=1):
        pass
    state = torch.get_rng_state()
    recorder = Recorder(
        watched, data, total_steps=6, checkpoints=3, mechanism=RECIPE.mechanism(48, assumed_sigma=0.1)
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
        watched, data, total_steps=2, checkpoints=1, mechanism=recipe.mechanism(8, assumed_sigma=0.1)
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
        model(), few(), total_steps=6, checkpoints=3, mechanism=RECIPE.mechanism(48, assumed_sigma=0.1)
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
