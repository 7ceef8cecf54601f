import numpy as np
import pytest

import remanence as rm
from remanence.types import as_ids, positions_of

MECHANISM = rm.Mechanism(sigma=0.1, sampling_rate=0.1, steps=10, batch_size=32)


def trace(**changes: object) -> rm.Trace:
    values: dict[str, object] = {
        "ids": np.array([3, 1, 2]),
        "steps": np.array([0, 5, 10]),
        "norms": np.ones((3, 3)),
        "mechanism": MECHANISM,
    }
    return rm.Trace(**(values | changes))  # type: ignore[arg-type]


def test_batch_size_taken_for_rate_says_so() -> None:
    with pytest.raises(rm.InputError, match="Did you pass the batch size"):
        rm.Mechanism(sigma=0.1, sampling_rate=128, steps=10, batch_size=128)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sigma", 0.0),
        ("sigma", float("nan")),
        ("steps", 0),
        ("batch_size", -1),
        ("sampling", "poison"),
        ("max_norm", 0),
    ],
)
def test_mechanism_refuses_nonsense(field: str, value: object) -> None:
    good = {"sigma": 0.1, "sampling_rate": 0.1, "steps": 10, "batch_size": 32}
    with pytest.raises(rm.InputError, match=f"`{field}`"):
        rm.Mechanism(**{**good, field: value})  # type: ignore[arg-type]


def test_arrays_of_a_trace_are_read_only_and_the_callers_own_stay_writable() -> None:
    norms = np.ones((3, 3))
    made = trace(norms=norms)
    norms[0, 0] = 7
    assert made.norms[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        made.norms[0, 0] = 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": np.array([0, 5, 5])}, "`steps` must increase"),
        ({"norms": np.ones((2, 3))}, r"\(3, 3\)"),
        ({"norms": np.array([[1, 1, 1], [1, np.nan, 1], [1, 1, 1]])}, "id 1 at step 5"),
        ({"norms": -np.ones((3, 3))}, "not negative"),
        ({"ids": np.array([1, 1, 2])}, "unique"),
        ({"ids": np.array([1.5, 1, 2])}, "whole numbers or text"),
    ],
)
def test_a_wrong_trace_is_refused_by_name(changes: dict[str, object], message: str) -> None:
    with pytest.raises(rm.InputError, match=message):
        trace(**changes)


def test_positions_follow_the_wanted_order_for_numbers_and_text() -> None:
    assert positions_of(as_ids([2, 3]), as_ids([3, 1, 2])).tolist() == [2, 0]
    assert positions_of(as_ids(["b", "a"]), as_ids(["a", "c", "b"])).tolist() == [2, 0]


@pytest.mark.parametrize(("wanted", "have"), [([9], [1, 2]), ([0], [1, 2]), ([1], []), (["x"], [1, 2])])
def test_unknown_ids_are_named(wanted: list[object], have: list[object]) -> None:
    with pytest.raises(rm.errors.DataError):
        positions_of(as_ids(wanted), as_ids(have))


def test_an_empty_forget_set_is_refused() -> None:
    with pytest.raises(rm.InputError, match="empty"):
        rm.ForgetSet("nobody", np.array([], dtype=np.int64))


def test_the_nearest_name_is_suggested() -> None:
    assert "Did you mean 'finetune'?" in str(
        rm.errors.UnknownNameError("method", "fintune", ["finetune", "scrub"])
    )
    assert "Known: finetune, scrub" in str(rm.errors.UnknownNameError("method", "zzz", ["finetune", "scrub"]))
