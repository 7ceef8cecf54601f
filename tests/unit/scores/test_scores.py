import numpy as np
import pytest

import remanence as rm
from remanence.scores import PROXIES, SCORES

MECHANISM = rm.Mechanism(sigma=0.1, sampling_rate=0.1, steps=10, batch_size=32)
NORMS = np.array([[9.0, 9.0], [1.0, 2.0], [3.0, 4.0]])
CONFIDENCE = np.array([[0.1, 0.1], [0.5, 0.9], [0.7, 1.0]])
TRACE = rm.Trace(np.array([4, 2]), np.array([0, 5, 10]), NORMS, MECHANISM, CONFIDENCE, 1 - CONFIDENCE)


def test_proxies_are_what_they_say() -> None:
    values = {name: SCORES[name](TRACE).values.tolist() for name in PROXIES}
    assert values["gradient_norm_middle"] == [1.0, 2.0]
    assert values["gradient_norm_end"] == [3.0, 4.0]
    assert values["gradient_norm_mean"] == [2.0, 3.0]
    assert values["confidence"] == pytest.approx([0.4, 0.05])
    assert values["error_norm"] == pytest.approx([0.5, 0.1])


@pytest.mark.parametrize("name", SCORES)
def test_every_score_keeps_the_contract(name: str) -> None:
    scores = SCORES[name](TRACE)
    assert scores.name == name
    assert scores.ids.tolist() == [4, 2]
    assert np.isfinite(scores.values).all()
    assert scores.status in rm.Status
    assert scores.reasons


@pytest.mark.parametrize("name", ["confidence", "error_norm"])
def test_what_was_not_recorded_is_named(name: str) -> None:
    bare = rm.Trace(TRACE.ids, TRACE.steps, TRACE.norms, MECHANISM)
    with pytest.raises(rm.InputError, match="was not recorded"):
        SCORES[name](bare)


@pytest.mark.parametrize(
    ("steps", "moments"),
    [
        ([0, 5, 10], "epochs"),
        ([5, 10], "epochs"),
        ([0, 4, 10], "checkpoints"),
        ([0, 2, 5, 10], "checkpoints"),
    ],
)
def test_confidence_says_over_which_moments(steps: list[int], moments: str) -> None:
    """Ten steps at a rate of 0.2 are two epochs, which end at steps 5 and 10."""
    mechanism = rm.Mechanism(sigma=0.1, sampling_rate=0.2, steps=10, batch_size=32)
    confidence = np.linspace(0, 1, 2 * len(steps)).reshape(-1, 2)
    trace = rm.Trace(TRACE.ids, np.array(steps), np.ones_like(confidence), mechanism, confidence)
    scores = SCORES["confidence"](trace)
    assert scores.params["moments"] == moments
    assert scores.values == pytest.approx(1 - confidence[np.array(steps) > 0].mean(axis=0))
