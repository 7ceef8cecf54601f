"""Constants that choose between the forms of a norm: measured, kept per machine, used and recorded."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import remanence as rm
from remanence.doctor import check_installation
from remanence.gradients import form_timing
from remanence.gradients.layers import conv_gradients, conv_norms, linear
from remanence.machine import NormConstants, norm_constants, using_constants, write_constants
from remanence.machine.norm_constants import BUILT_IN, _machine_constants
from remanence.types import Mechanism

SIZES = (8, 8), (8, 8), 32, 32, conv_gradients.Window((3, 3), (1, 1), (1, 1), (1, 1))


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("REMANENCE_CACHE", str(tmp_path))
    _machine_constants.cache_clear()
    yield tmp_path
    _machine_constants.cache_clear()


def test_without_a_file_the_built_in_constants_hold() -> None:
    assert norm_constants() == BUILT_IN
    assert norm_constants().label == "built-in"


def test_written_constants_are_found_by_the_next_process() -> None:
    measured = replace(BUILT_IN, shift_work=80, gram_share=0.9)
    write_constants(measured)
    _machine_constants.cache_clear()
    assert norm_constants() == measured
    assert norm_constants().label.startswith("measured ")
    assert norm_constants().label != replace(measured, narrow=32).label


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"shift_work": "many"}', "negative"])
def test_a_damaged_file_counts_as_none(content: str) -> None:
    path = write_constants(BUILT_IN)
    if content == "negative":
        content = path.read_text().replace("16", "-16")
    path.write_text(content)
    _machine_constants.cache_clear()
    assert norm_constants() == BUILT_IN


def _norms() -> torch.Tensor:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(32 * 64, 10))
    return rm.example_gradient_norms(model, torch.randn(4, 32, 8, 8), torch.arange(4))


def test_constants_choose_the_form_and_the_same_ones_give_the_same_bits() -> None:
    with using_constants(NormConstants(shift_work=1)):
        assert conv_norms.prefers_gram(*SIZES)
        gram, again = _norms(), _norms()
    with using_constants(NormConstants(shift_work=1000)):
        assert not conv_norms.prefers_gram(*SIZES)
        built = _norms()
    assert torch.equal(gram, again)
    torch.testing.assert_close(gram, built)
    with using_constants(NormConstants(gram_share=2.0)):
        assert not linear.prefers_gram(64, 64, 64)


def test_each_choice_goes_to_the_form_that_took_less_time() -> None:
    """A machine where Gram matrices take no time, and one where they take ever so long."""
    for fast, slow in ((True, False), (False, True)):
        layer = lambda: conv_norms.prefers_gram(*SIZES), {fast: 1.0, slow: 5.0}
        chosen = form_timing._fastest(BUILT_IN, "shift_work", [layer])
        with using_constants(chosen):
            assert conv_norms.prefers_gram(*SIZES) is fast


def test_a_small_gain_changes_nothing() -> None:
    layer = lambda: norm_constants().gram_bytes, dict.fromkeys(form_timing.CANDIDATES["gram_bytes"], 1.0)
    layer[1][1 << 19] = 0.97
    assert form_timing._fastest(BUILT_IN, "gram_bytes", [layer]) == BUILT_IN


def test_doctor_measures_keeps_and_shows_them(monkeypatch: pytest.MonkeyPatch, empty_cache: Path) -> None:
    monkeypatch.setattr(form_timing, "CONVOLUTIONS", ((4, 4, 4), (8, 16, 16)))
    monkeypatch.setattr(form_timing, "LINEARS", ((4, 8, 8),))
    shown = {check.topic: check.value for check in check_installation(measure=True)}
    assert shown["gradient norms"] == norm_constants().label
    (path,) = (empty_cache / "machine").glob("*-norms.json")
    assert set(asdict(norm_constants())) == set(asdict(BUILT_IN))
    assert path.stat().st_size > 0


def test_a_trace_says_which_constants_were_used() -> None:
    mechanism = Mechanism(sigma=0.1, sampling_rate=0.5, steps=1, batch_size=2)
    data = torch.utils.data.TensorDataset(torch.randn(4, 3), torch.tensor([0, 1, 0, 1]))
    measured = replace(BUILT_IN, narrow=32)
    with using_constants(measured):
        recorder = rm.Recorder(nn.Linear(3, 2), data, total_steps=1, checkpoints=1, mechanism=mechanism)
        recorder.step()
        trace = recorder.finish()
    assert trace.provenance["norm_constants"] == measured.label
    assert np.isfinite(trace.norms).all()
