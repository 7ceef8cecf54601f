"""What the norms promise besides being right: modes, gradients and ids left alone, errors in one sentence."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import remanence as rm
from remanence.errors import DataError, InputError, NumericalError, UnknownNameError
from remanence.gradients import norms_in_flight
from remanence.gradients.example_loop import loop_squared_norms
from remanence.losses import cross_entropy


@pytest.fixture
def problem() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1),
        nn.GroupNorm(2, 6),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Flatten(),
        nn.Linear(6 * 36, 10),
    )
    return model, torch.randn(9, 1, 6, 6), torch.randint(0, 10, (9,))


def loop(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    rows = loop_squared_norms(model.eval(), x, y, cross_entropy, dict(model.named_parameters()))
    return torch.stack(list(rows.values())).sum(0).sqrt()


def test_mode_gradients_and_flags_are_left_alone(problem: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = problem
    model.train()
    model[2].eval()
    model[0].weight.grad = torch.ones_like(model[0].weight)
    rm.example_gradient_norms(model, x, y)
    assert [m.training for m in model.children()] == [True, True, False, True, True, True]
    assert torch.equal(model[0].weight.grad, torch.ones_like(model[0].weight))
    assert all(p.requires_grad for p in model.parameters())
    assert model[5].weight.grad is None


def test_same_input_gives_the_same_bits(problem: tuple[nn.Module, Tensor, Tensor]) -> None:
    first, second = (rm.example_gradient_norms(*problem) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize("batch_size", [1, 2, 4, 9, "auto"])
def test_batch_size_does_not_matter(
    problem: tuple[nn.Module, Tensor, Tensor], dtype: torch.dtype, limit: float, batch_size: int
) -> None:
    model, x, y = problem
    expected = loop(model.to(dtype), x.to(dtype), y)
    found = rm.example_gradient_norms(model, x, y, batch_size=batch_size, dtype=dtype)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), expected, rtol=limit, atol=0)


def test_squared_and_by_parameter_add_up(problem: tuple[nn.Module, Tensor, Tensor]) -> None:
    total = rm.example_gradient_norms(*problem, squared=True, dtype=torch.float64)
    rows = rm.example_gradient_norms(*problem, squared=True, by_parameter=True, dtype=torch.float64)
    assert list(rows) == [name for name, _ in problem[0].named_parameters()]
    torch.testing.assert_close(torch.stack(list(rows.values())).sum(0), total)


def test_a_subset_of_parameters_by_name_or_tensor(problem: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = problem
    rows = rm.example_gradient_norms(model, x, y, by_parameter=True)
    by_name = rm.example_gradient_norms(model, x, y, parameters=["1.weight"])
    by_tensor = rm.example_gradient_norms(model, x, y, parameters=[model[1].weight])
    torch.testing.assert_close(by_name, rows["1.weight"])
    assert torch.equal(by_name, by_tensor)
    assert all(p.grad is None for p in model.parameters())


def test_own_loss_and_float_targets() -> None:
    torch.manual_seed(0)
    model, x, y = nn.Linear(4, 2, dtype=torch.float64), torch.randn(5, 4).double(), torch.randn(5, 2).double()
    found = rm.example_gradient_norms(model, x, y, loss=lambda out, t: 0.5 * (out - t).square().sum(1))
    residual = (model(x) - y).detach()
    expected = residual.norm(dim=1) * (x.square().sum(1) + 1).sqrt()
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(rm.example_gradient_norms(model, x, y, loss="squared_error"), expected)


@pytest.mark.parametrize("scale", [1e-20, 1e-12, 1e10, 1e15])
def test_tiny_and_huge_norms_keep_their_digits(
    problem: tuple[nn.Module, Tensor, Tensor], scale: float
) -> None:
    model, x, y = problem
    plain = rm.example_gradient_norms(model, x, y, dtype=torch.float64)
    scaled = rm.example_gradient_norms(model, x, y, loss=lambda out, t: scale * cross_entropy(out, t))
    torch.testing.assert_close(scaled.double() / scale, plain, rtol=1e-5, atol=0)
    rows = rm.example_gradient_norms(
        model, x, y, loss=lambda out, t: scale * cross_entropy(out, t), by_parameter=True
    )
    fine = rm.example_gradient_norms(model, x, y, by_parameter=True, dtype=torch.float64)
    for name, row in rows.items():
        torch.testing.assert_close(row.double() / scale, fine[name], rtol=1e-4, atol=1e-7)


@pytest.mark.half("bfloat16")
def test_autocast_norms_come_out_in_float32(
    problem: tuple[nn.Module, Tensor, Tensor],
) -> None:
    model, x, y = problem
    exact = rm.example_gradient_norms(model, x, y)
    half = rm.example_gradient_norms(model, x, y, dtype=torch.bfloat16)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, exact, rtol=0.05, atol=0)


def test_cancelling_positions_keep_their_digits() -> None:
    """Output gradients that nearly cancel over positions: the Gram form alone would lose them."""
    torch.manual_seed(0)
    layer = nn.Linear(64, 64, bias=False)
    x = torch.randn(4, 1, 64).expand(4, 8, 64) + 1e-4 * torch.randn(4, 8, 64)
    sign = torch.tensor([1.0, -1.0]).repeat(4)

    def loss(out: Tensor, targets: Tensor) -> Tensor:
        return (out.sum(2) * sign.to(out)).sum(1)

    exact = rm.example_gradient_norms(layer, x, torch.zeros(4), loss=loss, dtype=torch.float64)
    found = rm.example_gradient_norms(layer, x, torch.zeros(4), loss=loss)
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=0)


def test_dataset_in_order_with_ids_and_progress(problem: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = problem
    seen: list[tuple[int, int | None]] = []
    names = [f"image-{i}" for i in range(9)]
    ids, norms = rm.dataset_gradient_norms(
        model, TensorDataset(x, y), ids=names, batch_size=4, progress=lambda *p: seen.append(p)
    )
    assert ids.tolist() == names
    assert seen == [(4, 9), (8, 9), (9, 9)]
    torch.testing.assert_close(norms, rm.example_gradient_norms(model, x, y))


def test_shards_together_cover_the_set(problem: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = problem
    whole = rm.example_gradient_norms(model, x, y)
    seen = {}
    for index in range(3):
        ids, norms = rm.dataset_gradient_norms(model, TensorDataset(x, y), batch_size=2, shard=(index, 3))
        seen |= dict(zip(ids.tolist(), norms.tolist(), strict=True))
    assert sorted(seen) == list(range(9))
    torch.testing.assert_close(torch.tensor([seen[i] for i in range(9)]), whole)


def test_a_shuffled_loader_must_bring_ids(problem: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = problem
    whole = rm.example_gradient_norms(model, x, y)
    with_ids = DataLoader(TensorDataset(x, y, torch.arange(9)), batch_size=4, shuffle=True)
    ids, norms = rm.dataset_gradient_norms(model, with_ids)
    torch.testing.assert_close(norms, whole[torch.from_numpy(ids.copy())])
    with pytest.raises(DataError, match="shuffled loader"):
        rm.dataset_gradient_norms(model, DataLoader(TensorDataset(x, y), batch_size=4, shuffle=True))


def test_train_mode_statistics_are_refused() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2, track_running_stats=False), nn.Flatten())
    with pytest.raises(InputError, match=r"`1` uses the batch's.*eval.*GroupNorm"):
        rm.example_gradient_norms(model, torch.randn(4, 1, 5, 5), torch.zeros(4, dtype=torch.long))


def test_a_loss_that_mixes_examples_is_refused(problem: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = problem

    def contrastive(out: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(out @ out.T, torch.arange(len(out)), reduction="none")

    with pytest.raises(InputError, match="the loss mixes"):
        rm.example_gradient_norms(model, x, y, loss=contrastive)


def test_a_layer_that_mixes_examples_is_named() -> None:
    class Centre(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x - x.mean(0, keepdim=True)

    model = nn.Sequential(nn.Linear(4, 6), Centre(), nn.Linear(6, 10))
    with pytest.raises(InputError, match="; 1 mixes"):
        rm.example_gradient_norms(model, torch.randn(5, 4), torch.randint(0, 10, (5,)))


def test_nan_names_ids_and_layer(problem: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = problem
    x = x.clone()
    x[[3, 7]] = float("nan")
    with pytest.raises(NumericalError, match=r"`0.weight` those of 2 examples are not \(ids 3, 7\)"):
        rm.example_gradient_norms(model, x, y)
    with pytest.raises(NumericalError, match=r"ids d, h"):
        rm.dataset_gradient_norms(model, TensorDataset(x, y), ids=list("abcdefghi"))


def test_bad_input_is_one_sentence(problem: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = problem
    with pytest.raises(InputError, match="at least one example"):
        rm.example_gradient_norms(model, x[:0], y[:0])
    with pytest.raises(InputError, match="`targets` must have one row per example, 9"):
        rm.example_gradient_norms(model, x, y[:5])
    with pytest.raises(InputError, match="`targets` must have shape"):
        rm.example_gradient_norms(model, x, y[:, None])
    with pytest.raises(UnknownNameError, match="cross_entropy"):
        rm.example_gradient_norms(model, x, y, loss="crossentropy")
    with pytest.raises(InputError, match="one number per example"):
        rm.example_gradient_norms(model, x, y, loss=F.cross_entropy)
    with pytest.raises(InputError, match=r"nowhere\.weight does not"):
        rm.example_gradient_norms(model, x, y, parameters=["nowhere.weight"])
    with pytest.raises(InputError, match="`batch_size`"):
        rm.example_gradient_norms(model, x, y, batch_size=0)
    model.requires_grad_(False)
    with pytest.raises(InputError, match="requires a gradient"):
        rm.example_gradient_norms(model, x, y)


def test_code_that_needs_contiguous_images_still_runs() -> None:
    """Norms are taken with channels last where that is faster, unless a `view` forbids it."""

    class Viewed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(64, 10)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(self.conv(x).view(len(x), -1))
            return out

    torch.manual_seed(0)
    model, x, y = Viewed(), torch.randn(5, 3, 6, 6), torch.randint(0, 10, (5,))
    torch.testing.assert_close(
        rm.example_gradient_norms(model, x, y).double(), loop(model, x, y), rtol=1e-5, atol=0
    )
    twin = Viewed()
    with norms_in_flight(twin) as norms:
        F.cross_entropy(twin(x), y).backward()
    torch.testing.assert_close(norms.values.double(), loop(twin, x, y), rtol=1e-5, atol=0)


def test_weights_that_change_between_batches_are_read_anew() -> None:
    from remanence.gradients.norm_engine import NormEngine

    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 10)).eval()
    x, y = torch.randn(5, 3, 6, 6), torch.randint(0, 10, (5,))
    engine = NormEngine(model, cross_entropy, dict(model.named_parameters()))
    engine.squared_norms(x, y)
    with torch.no_grad():
        model[0].weight.mul_(2)
    found = torch.stack(list(engine.squared_norms(x, y).values())).sum(0).sqrt()
    torch.testing.assert_close(found, loop(model, x, y), rtol=1e-5, atol=0)


@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize("channels_last", [False, True])
def test_group_norm_of_inputs_far_from_zero_in_both_memory_formats(groups: int, channels_last: bool) -> None:
    """The same sums as the loop, also where the mean of a group is much larger than its spread."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3), nn.GroupNorm(groups, 8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 10)]
    model = nn.Sequential(*layers).double()
    x, y = torch.randn(5, 3, 6, 6, dtype=torch.float64) + 100, torch.arange(5)
    if channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    expected = loop_squared_norms(model, x, y, cross_entropy, dict(model.named_parameters()))
    found = rm.example_gradient_norms(model, x, y, squared=True)
    torch.testing.assert_close(found, torch.stack(list(expected.values())).sum(0), rtol=1e-9, atol=0.0)
