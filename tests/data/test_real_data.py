"""Every data set trains one epoch and is scored, on the real pictures in ../shared/data."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[3] / "shared" / "data"
LAYOUT = SHARED / "official-layout"
SOURCES = {
    "cifar10 pack": ["--data", SHARED / "cifar10_12k.npz"],
    "svhn pack": ["--data", SHARED / "svhn_12k.npz"],
    "fashion-mnist pack": ["--data", SHARED / "fashion_mnist_12k.npz"],
    "svhn official": ["--data", "svhn", "--data-dir", LAYOUT],
    "cifar10 official": ["--data", "cifar10", "--data-dir", LAYOUT],
}


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "remanence", *map(str, arguments)], capture_output=True, text=True, check=False
    )


@pytest.mark.data
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not SHARED.exists(), reason="the real pictures of ../shared/data are not here")
@pytest.mark.parametrize("name", SOURCES)
def test_one_epoch_and_a_score(name: str, tmp_path: Path) -> None:
    model = ["--model", "resnet18", "--width", "4", "--epochs", "1", "--record", "1", "--lr", "0.05"]
    trained = run("train", *SOURCES[name], *model, "--out", tmp_path / "run", "--json")
    assert trained.returncode == 0, trained.stderr
    accuracy = json.loads(trained.stdout)["test_accuracy"]
    if (
        "official" in name
    ):  # excerpts: too few pictures to learn from in one epoch, and not the official files
        assert "have another MD5" in trained.stderr
    else:
        assert accuracy > 0.15
    scored = run(
        "score", tmp_path / "run", "--score", "privacy_loss", "--out", tmp_path / "scores.csv", "--json"
    )
    assert scored.returncode == 0, scored.stderr
    lines = (tmp_path / "scores.csv").read_text().splitlines()
    assert len(lines) > 500
