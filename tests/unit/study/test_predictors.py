"""Farther to go is told apart from slower."""

from pathlib import Path

import numpy as np
import pytest

from remanence.storage import create, open_folder
from remanence.study.figures.predictors import partial, read_forgotten


def test_gap_and_time_of_every_example(tmp_path: Path) -> None:
    """Four examples: fast, slow, never, and one that its oracles know as well as the model does."""
    steps = np.array([0, 1, 2, 4])
    model = np.array([[8.0, 8, 8, 3], [2, 7, 8, 3], [0, 6, 7, 3], [0, 1, 7, 3]])
    oracles = np.array([[1.0, 1, 1, 2.5], [-1, -1, -1, 2.5]])
    ids = np.array([7, 5, 3, 1])
    with create(tmp_path / "paths", "paths") as draft:
        draft.tensors("paths", {"ids": ids, "steps": steps, "model": model, "oracles": oracles})
    forgotten = read_forgotten(open_folder(tmp_path / "paths", "paths"))
    assert forgotten.ids.tolist() == [7, 5, 3]
    assert forgotten.gap.tolist() == [8.0, 8.0, 8.0]
    assert forgotten.half.tolist() == [1.0, 4.0, 5.0], "one that never closes half is slower than all others"


def test_a_partial_correlation_holds_the_third_fixed() -> None:
    rng = np.random.default_rng(0)
    gap = rng.normal(size=4000)
    score, time = gap + rng.normal(size=4000), gap + rng.normal(size=4000)
    ab, ac, bc = (float(np.corrcoef(*pair)[0, 1]) for pair in ((score, time), (score, gap), (time, gap)))
    assert ab > 0.4
    assert partial(ab, ac, bc) == pytest.approx(0.0, abs=0.05), "it was the gap alone"
    assert partial(0.3, 0.0, 0.0) == 0.3
    assert partial(0.3, 1.0, 0.0) is None
    assert partial(None, 0.0, 0.0) is None
