"""`remanence bound …`: calculators for every bound, each with its status and its assumptions."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from remanence.cli import console
from remanence.cli.options import Flag, Json, Repeated
from remanence.theory.routes import GivenStatus, RouteSettings
from remanence.types import Bound

app = App(name="bound")

Composition = Annotated[
    Literal["pathwise", "stepwise", "printed", "accountant"],
    Parameter(help="How the losses of the steps are added."),
]
Alpha = Annotated[float, Parameter(help="Rényi order.")]
Assumed = Annotated[bool, Parameter(negative="", help="The noise was not really added.")]
Route = Annotated[RouteSettings, Parameter(name="*", negative="")]
_ROUTE = RouteSettings()


@app.command
def loss(
    *,
    sampling_rate: float,
    ratio: float,
    steps: int,
    alpha: Alpha = 8.0,
    composition: Composition = "pathwise",
    p: float | None = None,
    everywhere: Flag = False,
    assumed: Assumed = False,
    json: Json = False,
) -> None:
    """Privacy loss of an example whose gradient has the same norm at every step.

    For example:

    `remanence bound loss --alpha 8 --sampling-rate 0.01 --ratio 1 --steps 1000 --composition accountant`

    Parameters
    ----------
    sampling_rate:
        Probability that a step uses the example.
    ratio:
        Gradient norm divided by batch size times sigma (by sigma for noise on the sum).
    steps:
        Number of training steps.
    p:
        Hölder exponent; the composition's own choice by default.
    everywhere:
        The ratio bounds the gradient at every weight vector (clipping, a Lipschitz constant).
    """
    from remanence.theory.constant_norms import constant_loss

    bound, exponent = constant_loss(
        sampling_rate=sampling_rate,
        ratio=ratio,
        steps=steps,
        alpha=alpha,
        composition=composition,
        p=p,
        everywhere=everywhere,
        assumed=assumed,
    )
    _show("privacy_loss", bound, {"alpha": alpha, "p": exponent}, json)


@app.command
def group(
    *,
    sampling_rate: float,
    ratio: float,
    size: int,
    steps: int,
    similarity: float = 0.0,
    alpha: Alpha = 8.0,
    method: Literal["coupled", "upper", "published"] = "coupled",
    composition: Composition = "pathwise",
    assumed: Assumed = False,
    seed: int = 0,
    json: Json = False,
) -> None:
    """Group loss of a forget set whose gradients have one norm and one pairwise similarity.

    For example:

    `remanence bound group --sampling-rate 0.01 --ratio 0.1 --size 100 --steps 1000 --method upper`

    Parameters
    ----------
    sampling_rate:
        Probability that a step uses an example.
    ratio:
        Gradient norm of each example divided by batch size times sigma.
    size:
        Number of examples in the forget set.
    steps:
        Number of training steps.
    similarity:
        Cosine between any two gradients, from 0 to 1.
    method:
        `coupled` (sampled), `upper` (its deterministic bound) or `published` (one point at a growing order).
    seed:
        Random seed of the sampled estimate.
    """
    from remanence.theory.constant_norms import constant_group_loss

    bound = constant_group_loss(
        sampling_rate=sampling_rate,
        ratio=ratio,
        size=size,
        steps=steps,
        similarity=similarity,
        alpha=alpha,
        method=method,
        composition=composition,
        assumed=assumed,
        seed=seed,
    )
    _show("group_loss", bound, {"alpha": alpha, "size": size}, json)


@app.command
def steps(target: float, /, *, route: Route = _ROUTE, json: Json = False) -> None:
    """Number of steps that unlearn down to a target.

    For example:

    `remanence bound steps 0.5 --route shifted --learning-rate 10.7 --sigma 5e-4 --smoothness 0.0935
    --strong-convexity 0.002 --train-steps 400 --lipschitz 1 --n 10000`

    Parameters
    ----------
    target:
        Target ε at δ; a Rényi divergence for `corollary` and `same-horizon`.
    """
    from remanence.theory.convergence import steps_to_unlearn

    _show("steps", steps_to_unlearn(target, route.make()), {"target": target}, json)


@app.command
def epsilon(k: int, /, *, route: Route = _ROUTE, json: Json = False) -> None:
    """Remaining ε after k unlearning steps: the inverse of `steps`.

    For example:

    `remanence bound epsilon 100 --loss 2.5 --learning-rate 3.8 --smoothness 0.26 --strong-convexity 0.01`

    Parameters
    ----------
    k:
        Number of unlearning steps.
    """
    from remanence.theory.convergence import epsilon_after

    _show("epsilon", epsilon_after(k, route.make()), {"k": k}, json)


@app.command
def convert(
    *,
    delta: float = 1e-5,
    alphas: Annotated[list[float] | None, Repeated, Parameter(name="--alpha")] = None,
    divergences: Annotated[list[float] | None, Repeated, Parameter(name="--divergence")] = None,
    mu: float | None = None,
    status: GivenStatus = "estimate",
    json: Json = False,
) -> None:
    """Convert Rényi divergences, or the distance of two Gaussians, to ε at δ.

    For example:

    `remanence bound convert --alpha 8 --divergence 0.9 --delta 1e-5`

    `remanence bound convert --mu 0.2`

    Parameters
    ----------
    delta:
        Probability δ.
    alphas:
        Order of a divergence; may be given several times.
    divergences:
        Rényi divergence at each order; may be given several times.
    mu:
        Distance of two unit Gaussians, instead of divergences.
    status:
        What is known about the given numbers: `certificate` if they are proved bounds.
    """
    from remanence.theory.routes import epsilon_at_delta

    bound, order = epsilon_at_delta(
        delta, alphas=alphas or (), divergences=divergences or (), mu=mu, status=status
    )
    _show("epsilon", bound, {"delta": delta} | ({"alpha": order} if mu is None else {"mu": mu}), json)


def _show(name: str, bound: Bound, inputs: Mapping[str, Any], json: bool) -> None:
    value = bound.value if isfinite(bound.value) else None
    if json:
        document = {
            name: value,
            "value": value,
            "status": bound.status.value,
            "formula": bound.formula,
            "assumptions": list(bound.assumptions),
            **inputs,
        }
        console.print_json(document)
        return
    lines = [
        f"{name.replace('_', ' ')}  {'no finite value' if value is None else f'{value:.6g}'}",
        f"status  {bound.status.value}",
        f"formula  {bound.formula}",
        *(f"  - {assumption}" for assumption in bound.assumptions),
    ]
    console.out.print("\n".join(lines), soft_wrap=True, markup=False)
