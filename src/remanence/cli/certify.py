"""`remanence certify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from remanence.cli import console

app = App(name="certify")


@app.default
def certify(
    *,
    data: str = "digits",
    label: str | None = None,
    epsilon: float = 0.5,
    delta: float = 1e-5,
    sigma: float | None = None,
    l2: float = 0.002,
    steps: int = 400,
    runs: int = 24,
    failure: float = 1e-6,
    per_example: Annotated[bool, Parameter(negative="")] = False,
    attack_models: int = 500,
    seed: int = 0,
    out: Path | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Certify, for every example, how many steps make a logistic regression forget it; then attack the hardest.

    Trains by noisy gradient descent on full batches, follows every example through R runs, and proves a
    number of unlearning steps for each at a target (ε, δ), beside the published worst case and the best worst
    case. Then unlearns the hardest example and tries to tell the result from retraining.

    Example:

    `remanence certify --data digits`

    `remanence certify --data features.npz --epsilon 1 --json`

    Parameters
    ----------
    data:
        `digits`, `reference`, or a file: `.npz` with `X` and `y`, or a Parquet table.
    label:
        The label's column in a Parquet table.
    epsilon:
        Target ε.
    delta:
        Target δ.
    sigma:
        Noise; 5 / n by default.
    l2:
        Strength of the regulariser, which makes the loss strongly convex.
    steps:
        Training steps.
    runs:
        Training runs the certificate is computed from.
    failure:
        Chance that the statement is wrong.
    per_example:
        State `failure` for each example and k by itself, not for all at once.
    attack_models:
        Models of each kind in the attack; 0 for none.
    seed:
        Of everything random.
    out:
        Write every example's certified k and ε to this CSV file.
    json:
        Print one JSON document.
    """
    from remanence.certify import certify as run
    from remanence.certify import load_problem
    from remanence.storage.atomic import write_text

    outcome = run(
        load_problem(data, label=label),
        epsilon=epsilon,
        delta=delta,
        sigma=sigma,
        l2=l2,
        steps=steps,
        runs=runs,
        failure=failure,
        simultaneous=not per_example,
        attack_models=attack_models,
        seed=seed,
        note=console.note,
    )
    if out is not None:
        write_text(out, outcome.table())
        console.note(f"Certified steps of every example are in {out}.")
    document = outcome.document()
    if json:
        console.print_json(document)
    else:
        console.out.print(_summary(document), soft_wrap=True, markup=False)


def _summary(found: dict[str, Any]) -> str:
    k = found["k_instance"]
    attack = found["attack"]
    lines = [
        f"{found['data']}: {found['n']} examples, training accuracy {found['accuracy']:.3f}",
        f"steps to unlearn one example to ε = {found['epsilon']:g}, δ = {found['delta']:g}  ({found['status']})",
        f"  certified for each example  {k['min']:g} / {k['median']:g} / {k['max']:g}  (least, median, most)",
        f"  best worst case             {_steps(found['k_shifted'])}",
        f"  published worst case        {_steps(found['k_published'])}",
    ]
    if found["epsilon_measured"] is not None:
        lines += [
            f"attack on example {attack['id']}, {attack['models']} models of each kind, 95 % limits",
            f"  before unlearning           ε of at least {found['epsilon_measured_before']:.3f}",
            f"  after {attack['k']} steps".ljust(30)
            + f"ε of at least {found['epsilon_measured']:.3f}; certified {found['epsilon_certified']:.3f}",
        ]
    if not found["consistent"]:
        lines.append("The attack contradicts the certificate: do not rely on it, and please report this.")
    lines += [f"  - {reason}" for reason in found["reasons"]]
    return "\n".join(lines)


def _steps(value: float | None) -> str:
    return "none suffices" if value is None else f"{value:g}"
