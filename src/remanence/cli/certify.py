"""`remanence certify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import App

from remanence.cli import console
from remanence.cli.options import Flag, Json, Repeated

app = App(name="certify")


@app.default
def certify(
    *,
    data: str = "digits",
    label: str | None = None,
    classes: Annotated[list[str] | None, Repeated] = None,
    epsilon: float = 0.5,
    delta: float = 1e-5,
    sigma: float | None = None,
    l2: float = 0.002,
    learning_rate: float | None = None,
    steps: int = 400,
    runs: int = 24,
    failure: float = 1e-6,
    per_example: Flag = False,
    attack_models: int = 500,
    seed: int = 0,
    out: Path | None = None,
    json: Json = False,
) -> None:
    """Certify, for every example, how many steps make a logistic regression forget it; then attack the hardest.

    Trains by noisy gradient descent on full batches, follows every example through several training runs, and proves a
    number of unlearning steps for each example at a target (ε, δ), beside the published worst case and the best worst
    case. Then unlearns the hardest example and tries to distinguish the result from retraining.

    For example:

    `remanence certify --data digits`

    `remanence certify --data features.npz --epsilon 1 --json`

    Parameters
    ----------
    data:
        `digits`, `reference`, or a file: `.npz` with `X` and `y`, or a Parquet table.
    label:
        Column of the labels in a Parquet table.
    classes:
        A class that is public, whether or not the file has examples of it; may be given several times, for all
        classes. Without it, the only example of a class has no certificate.
    epsilon:
        Target ε.
    delta:
        Target δ.
    sigma:
        Noise level σ; 5 / n by default.
    l2:
        Strength of the L2 regularization, which makes the loss strongly convex.
    learning_rate:
        Learning rate η, chosen without looking at the data; 1 / (1/4 + L2) by default.
    steps:
        Number of training steps.
    runs:
        Number of training runs that the certificate is computed from.
    failure:
        Probability that the statement is wrong.
    per_example:
        State the failure probability for each example and k separately, not for all at once.
    attack_models:
        Number of models of each kind in the attack; 0 for no attack.
    seed:
        Random seed for the training runs and the attack.
    out:
        Write the certified k and ε of every example to this CSV file.
    """
    from remanence.certify import certify as certify_problem
    from remanence.certify import load_problem
    from remanence.storage.atomic import write_text

    certification = certify_problem(
        load_problem(data, label=label, classes=classes),
        epsilon=epsilon,
        delta=delta,
        sigma=sigma,
        l2=l2,
        learning_rate=learning_rate,
        steps=steps,
        runs=runs,
        failure=failure,
        simultaneous=not per_example,
        attack_models=attack_models,
        seed=seed,
        note=console.note,
    )
    if out is not None:
        write_text(out, certification.table())
        console.note(f"The certified steps of every example are in {out}.")
    document = certification.document()
    if json:
        console.print_json(document)
    else:
        console.out.print(_summary(document), soft_wrap=True, markup=False)


def _summary(result: dict[str, Any]) -> str:
    k = result["k_instance"]
    lines = [
        f"{result['data']}: {result['n']} examples, training accuracy {result['accuracy']:.3f}",
        f"steps to unlearn one example to ε = {result['epsilon']:g}, δ = {result['delta']:g}  ({result['status']})",
        f"  certified for each example  {k['min']:g} / {k['median']:g} / {k['max']:g}  (least, median, most)",
        *_not_certified(result),
        f"  best worst case             {_steps(result['k_shifted'])}",
        f"  published worst case        {_steps(result['k_published'])}",
    ]
    if result["epsilon_measured"] is not None:
        lines += _attack(result)
    if not result["consistent"]:
        lines.append("The attack contradicts the certificate: do not rely on it, and please report this.")
    return "\n".join([*lines, *(f"  - {reason}" for reason in result["reasons"])])


def _attack(result: dict[str, Any]) -> list[str]:
    attack = result["attack"]
    return [
        f"attack on example {attack['id']}, {attack['models']} models of each kind, 95 % limits",
        f"  before unlearning           ε of at least {result['epsilon_measured_before']:.3f}",
        f"  after {attack['k']} steps".ljust(30)
        + f"ε of at least {result['epsilon_measured']:.3f}; certified {result['epsilon_certified']:.3f}",
    ]


def _not_certified(result: dict[str, Any]) -> list[str]:
    count = result["not_certified"]
    return [f"  without a certificate       {count} of {result['n']} examples"] if count else []


def _steps(value: float | None) -> str:
    return "no number suffices" if value is None else f"{value:g}"
