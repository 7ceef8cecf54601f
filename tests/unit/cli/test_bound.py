import json

import pytest

from remanence.cli.main import run


def _loss(rate="0.01", ratio="1"):
    return ["bound", "loss", "--sampling-rate", rate, "--ratio", ratio, "--steps", "1000"]


LOSS = _loss()
CONVEX = ["--learning-rate", "3.8", "--sigma", "0.003", "--smoothness", "0.26", "--strong-convexity", "0.01"]


def document(capsys, arguments):
    assert run([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_loss_prints_the_accountants_number(capsys):
    found = document(capsys, [*LOSS, "--alpha", "8", "--composition", "accountant"])
    assert found["value"] == pytest.approx(0.89364, abs=5e-6)
    assert found["status"] == "estimate"
    assert found["formula"] == "privacy loss, accountant"
    assert found["assumptions"]
    assert document(capsys, [*LOSS, "--everywhere"])["status"] == "certificate"
    assert document(capsys, [*LOSS, "--assumed"])["status"] == "heuristic"
    assert document(capsys, [*LOSS, "--composition", "printed"])["status"] == "heuristic"


def test_every_calculator_says_value_status_formula_and_assumptions(capsys):
    group = ["bound", "group", "--sampling-rate", "0.01", "--ratio", "0.1", "--size", "10", "--steps", "100"]
    commands = [
        LOSS,
        group,
        [*group, "--method", "upper", "--similarity", "0.5"],
        [*group, "--method", "published"],
        ["bound", "steps", "0.5", "--loss", "2", *CONVEX],
        [
            "bound",
            "steps",
            "0.5",
            "--route",
            "corollary",
            "--loss",
            "2",
            "--far",
            "1",
            "--near",
            "0.1",
            *CONVEX,
        ],
        ["bound", "steps", "0.5", "--route", "published", "--n", "10000", "--lipschitz", "1", *CONVEX],
        ["bound", "epsilon", "10", "--route", "shifted", "--n", "10000", "--lipschitz", "1", *CONVEX],
        [
            "bound",
            "epsilon",
            "10",
            "--route",
            "hockey-stick",
            "--radius",
            "1",
            "--lipschitz",
            "1",
            "--sigma",
            "1",
        ],
        ["bound", "convert", "--mu", "0.2"],
        ["bound", "convert", "--alpha", "8", "--alpha", "16", "--divergence", "0.1", "--divergence", "0.2"],
    ]
    for command in commands:
        found = document(capsys, command)
        assert {"value", "status", "formula", "assumptions"} <= set(found)
        assert run(command) == 0
        shown = capsys.readouterr().out
        assert f"status  {found['status']}" in shown
        assert found["formula"] in shown


def test_what_has_no_finite_value_is_said_to_be_vacuous(capsys):
    route = ["--route", "hockey-stick", "--radius", "1", "--lipschitz", "1", "--sigma", "0.1"]
    found = document(capsys, ["bound", "steps", "0.5", "--learning-rate", "0.1", *route])
    assert found["value"] is None
    assert found["status"] == "vacuous"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*LOSS, "--alpha", "1"], "--alpha must be a finite number above 1; got 1.0"),
        (_loss(rate="128"), "batch_size / len(train)"),
        (_loss(ratio="-1"), "--ratio must be finite and not negative"),
        (_loss(ratio="nan"), "got nan"),
        (["bound", "steps", "0.5", "--loss", "2"], "--train-steps"),
        (["bound", "steps", "0.5", *CONVEX], "needs --loss"),
        (["bound", "convert"], "either --mu, or --alpha with --divergence"),
        (["bound", "convert", "--alpha", "8"], "--divergence must"),
    ],
)
def test_bad_input_is_one_sentence(capsys, arguments, message):
    assert run(arguments) == 2
    assert message in " ".join(capsys.readouterr().err.split())
