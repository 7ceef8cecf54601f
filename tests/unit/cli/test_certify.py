import json

import numpy as np

from remanence.cli.main import run


def test_certify_reports_every_number_asked_for(capsys, tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    np.savez(tmp_path / "features.npz", X=rng.normal(size=(200, 5)) * 0.2 + y[:, None] * 0.4, y=y)
    command = ["certify", "--data", str(tmp_path / "features.npz"), "--steps", "60", "--runs", "6"]
    command += ["--l2", "0.02", "--attack-models", "100"]
    assert run([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["k_instance"]) == {"min", "p10", "median", "p90", "max"}
    assert found["epsilon_measured"] <= found["epsilon_certified"] <= found["epsilon"]
    assert found["k_instance"]["max"] <= found["k_shifted"] <= found["k_published"]
    assert run([*command, "--out", str(tmp_path / "steps.csv")]) == 0
    assert len((tmp_path / "steps.csv").read_text().splitlines()) == 201
    shown = capsys.readouterr().out
    assert "best worst case" in shown
    assert "certificate" in shown


def test_a_missing_file_is_one_sentence(capsys):
    assert run(["certify", "--data", "nowhere.npz"]) == 2
    assert "there is no nowhere.npz" in capsys.readouterr().err
