"""What identifies a stage: its kind, version, parameters and inputs, and nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from remanence.stages import NOT_IN_KEY, Read, Stage, in_order, plain
from remanence.storage import Draft


@dataclass(frozen=True)
class Place:
    name: str
    folder: str = field(default="", metadata=NOT_IN_KEY)


@dataclass(frozen=True, eq=False, kw_only=True)
class Work(Stage):
    kind = "work"

    place: Place = Place("here")
    rates: tuple[float, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    limit: int | None = None
    first: Stage | None = None
    others: tuple[Stage, ...] = ()

    def compute(self, draft: Draft, read: Read) -> None:
        raise NotImplementedError


@dataclass(frozen=True, eq=False, kw_only=True)
class NewerWork(Work):
    version = 2


def chain(limit: int) -> tuple[Work, Work, Work]:
    one = Work(limit=limit)
    two = Work(limit=10, first=one)
    return one, two, Work(limit=100, first=one, others=(two, one))


def test_inputs_are_named_after_their_fields() -> None:
    one, two, three = chain(1)
    assert three.inputs == {"first": (one,), "others": (two, one)}
    assert three.needs == (one, two, one)
    assert (one.inputs, one.needs) == ({}, ())
    assert not {"first", "others"} & three.params.keys()


def test_the_key_is_made_of_kind_version_parameters_and_inputs() -> None:
    assert chain(1)[2].key == chain(1)[2].key
    assert chain(1)[2].key.startswith("work-")
    assert NewerWork().key != Work().key
    changed = [
        Work(rates=(0.1,)),
        Work(rates=(0.2,)),
        Work(options={"a": 1}),
        Work(place=Place("there")),
        Work(limit=3),
    ]
    assert len({stage.key for stage in (Work(), *changed)}) == 1 + len(changed)
    assert Work(options={"a": 1, "b": 2}).key == Work(options={"b": 2, "a": 1}).key


def test_a_changed_input_changes_the_key_of_everything_that_depends_on_it() -> None:
    for before, after in zip(chain(1), chain(2), strict=True):
        assert before.key != after.key
    one, two, _ = chain(1)
    assert Work(first=one).key != Work(first=two).key
    assert Work(first=one).key != Work(others=(one,)).key, "the same stage in another role"
    assert Work(others=(one, two)).key != Work(others=(two, one)).key


def test_fields_that_say_nothing_about_the_result_are_not_in_the_key() -> None:
    plainly = Work(place=Place("here"))
    elsewhere = Work(place=Place("here", "/mnt/data"), cost=7.0, title="seed 1")
    assert elsewhere.key == plainly.key
    assert elsewhere.params == plainly.params
    assert "/mnt/data" not in str(elsewhere.params)
    assert Work(first=elsewhere).key == Work(first=plainly).key


def test_parameters_are_json_values() -> None:
    assert Work(rates=(0.1, 0.2), options={"size": (1, 2)}).params == {
        "place": {"name": "here"},
        "rates": [0.1, 0.2],
        "options": {"size": [1, 2]},
        "limit": None,
        "first": None,
        "others": [],
    }
    nested = {"a": (Place("x", "y"), np.arange(3)), "b": [np.array([0.5])]}
    assert plain(nested) == {"a": [{"name": "x"}, [0, 1, 2]], "b": [[0.5]]}
    assert plain(Place) is Place, "a class is no settings"


def test_a_parameter_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        _ = Work(rates=(float("nan"),)).key


def test_inputs_come_before_the_stages_that_use_them_and_each_once() -> None:
    assert [stage.key for stage in in_order([chain(1)[2]])] == [stage.key for stage in chain(1)]
    assert [stage.key for stage in in_order(chain(1)[::-1])] == [stage.key for stage in chain(1)]
    assert in_order([]) == []


def test_a_copy_with_a_change_has_a_key_of_its_own() -> None:
    stage = Work(limit=1)
    before = stage.key
    assert replace(stage, limit=2).key != before, "the key of the original is not copied"
    assert replace(stage, title="other").key == before


def test_a_stage_must_say_how_it_is_computed() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Stage()  # type: ignore[abstract]
