"""`remanence bound …`: calculators for every bound, each with its status and its assumptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from cyclopts import App, Parameter

from remanence.cli import console
from remanence.cli.routes import RouteOptions, route_from
from remanence.errors import InputError
from remanence.types import Bound, Mechanism, Status

app = App(name="bound", help="Calculate a bound: value, status, assumptions and the formula's name.")

Json = Annotated[bool, Parameter(negative="")]
Flag = Annotated[bool, Parameter(negative="")]
Compose = Literal["pathwise", "stepwise", "printed", "accountant"]


@app.command
def loss(
    *,
    sampling_rate: float,
    ratio: float,
    steps: int,
    alpha: float = 8.0,
    composition: Compose = "pathwise",
    p: float | None = None,
    everywhere: Flag = False,
    assumed: Flag = False,
    json: Json = False,
) -> None:
    """Privacy loss of an example whose gradient has the same norm at every step.

    Example:

    `remanence bound loss --alpha 8 --sampling-rate 0.01 --ratio 1 --steps 1000 --composition accountant`

    Parameters
    ----------
    sampling_rate:
        Probability that a step uses the example.
    ratio:
        Gradient norm over batch size times sigma (over sigma for noise on the sum).
    steps:
        Training steps.
    alpha:
        Rényi order.
    composition:
        How steps add up.
    p:
        Hölder exponent; the composition's own choice by default.
    everywhere:
        The ratio bounds the gradient at every weight vector (clipping, a Lipschitz constant).
    assumed:
        The noise was not really added.
    json:
        Print one JSON document.
    """
    from remanence.theory.privacy_loss import privacy_loss

    _check_ratio(ratio)
    scores = privacy_loss(
        np.full((1, 1), ratio),
        steps=[0],
        mechanism=_mechanism(sampling_rate, steps, assumed=assumed),
        alpha=alpha,
        composition=composition,
        p=p,
        everywhere=everywhere,
    )
    bound = Bound(float(scores.values[0]), scores.status, scores.reasons, f"privacy loss, {composition}")
    _show("privacy_loss", bound, {"alpha": alpha, "p": scores.params["p"]}, json)


@app.command
def group(
    *,
    sampling_rate: float,
    ratio: float,
    size: int,
    steps: int,
    similarity: float = 0.0,
    alpha: float = 8.0,
    method: Literal["coupled", "upper", "published"] = "coupled",
    composition: Compose = "pathwise",
    assumed: Flag = False,
    seed: int = 0,
    json: Json = False,
) -> None:
    """Group loss of a forget set whose gradients have one norm and one pairwise similarity.

    Example:

    `remanence bound group --sampling-rate 0.01 --ratio 0.1 --size 100 --steps 1000 --method upper`

    Parameters
    ----------
    sampling_rate:
        Probability that a step uses an example.
    ratio:
        Gradient norm of each over batch size times sigma.
    size:
        Examples in the forget set.
    steps:
        Training steps.
    similarity:
        Cosine between any two gradients, from 0 to 1.
    alpha:
        Rényi order.
    method:
        `coupled` (sampled), `upper` (its deterministic bound) or `published` (one point at a growing order).
    composition:
        How steps add up.
    assumed:
        The noise was not really added.
    seed:
        Of the sampled estimate.
    json:
        Print one JSON document.
    """
    from remanence.theory.group import group_loss, published_group_loss
    from remanence.theory.privacy_loss import privacy_loss

    mechanism = _mechanism(sampling_rate, steps, assumed=assumed)
    if size < 0:
        raise InputError(f"`size` must be a whole number of at least 0; got {size}.")
    if not 0 <= similarity <= 1:
        raise InputError(f"`similarity` must be between 0 and 1; got {similarity}.")
    _check_ratio(ratio)
    if method == "published":

        def single(order: float) -> float:
            scores = privacy_loss(
                np.full((1, 1), ratio), steps=[0], mechanism=mechanism, alpha=order, composition="accountant"
            )
            return float(scores.values[0])

        bound = published_group_loss(single, size, alpha=alpha)
    else:
        gram = ratio**2 * (similarity * np.ones((size, size)) + (1 - similarity) * np.eye(size))
        bound = group_loss(
            [gram],
            steps=[0],
            mechanism=mechanism,
            alpha=alpha,
            method=method,
            composition=composition,
            seed=seed,
        )
    _show("group_loss", bound, {"alpha": alpha, "size": size}, json)


@app.command
def steps(target: float, options: RouteOptions | None = None, *, json: Json = False) -> None:
    """Steps to unlearn down to a target.

    Example:

    `remanence bound steps 0.5 --route shifted --learning-rate 10.7 --sigma 5e-4 --smoothness 0.0935
    --strong-convexity 0.002 --train-steps 400 --lipschitz 1 --n 10000`

    Parameters
    ----------
    target:
        ε at δ, or a Rényi divergence for `corollary` and `same-horizon`.
    json:
        Print one JSON document.
    """
    from remanence.theory.convergence import steps_to_unlearn

    _show("steps", steps_to_unlearn(target, route_from(options or RouteOptions())), {"target": target}, json)


@app.command
def epsilon(k: int, options: RouteOptions | None = None, *, json: Json = False) -> None:
    """What is left after k unlearning steps: the inverse of `steps`.

    Example:

    `remanence bound epsilon 100 --loss 2.5 --learning-rate 3.8 --smoothness 0.26 --strong-convexity 0.01`

    Parameters
    ----------
    k:
        Unlearning steps.
    json:
        Print one JSON document.
    """
    from remanence.theory.convergence import epsilon_after

    _show("epsilon", epsilon_after(k, route_from(options or RouteOptions())), {"k": k}, json)


@app.command
def convert(
    *,
    delta: float = 1e-5,
    alpha: list[float] | None = None,
    divergence: list[float] | None = None,
    mu: float | None = None,
    json: Json = False,
) -> None:
    """Read Rényi divergences, or a Gaussian distance, as ε at δ.

    Example:

    `remanence bound convert --alpha 8 --divergence 0.9 --delta 1e-5`

    `remanence bound convert --mu 0.2`

    Parameters
    ----------
    delta:
        The chance of failure.
    alpha:
        Order of each divergence; may be repeated.
    divergence:
        Rényi divergence at each order; may be repeated.
    mu:
        Distance of two unit Gaussians, instead of divergences.
    json:
        Print one JSON document.
    """
    from remanence.theory.conversion import gaussian_epsilon, renyi_to_epsilon

    if (mu is None) == (alpha is None):
        raise InputError("Give either `--mu`, or `--alpha` with `--divergence`.")
    one_way = "P(E) ≤ e^ε Q(E) + δ, in the direction of the divergence only."
    if mu is not None:
        bound = Bound(
            gaussian_epsilon(mu, delta), Status.CERTIFICATE, (one_way,), "Gaussian differential privacy"
        )
        extra: dict[str, Any] = {"mu": mu}
    else:
        value, best = renyi_to_epsilon(alpha or [], divergence or [], delta)
        given = "The divergences given are bounds."
        bound = Bound(value, Status.CERTIFICATE, (given, one_way), "Rényi to (ε, δ), best order")
        extra = {"alpha": best}
    _show("epsilon", bound, {"delta": delta, **extra}, json)


def _check_ratio(ratio: float) -> None:
    if not (np.isfinite(ratio) and ratio >= 0):
        raise InputError(f"`ratio` must be finite and not negative; got {ratio}.")


def _mechanism(sampling_rate: float, steps: int, *, assumed: bool) -> Mechanism:
    """A mechanism whose norms are ratios already."""
    return Mechanism(1.0, sampling_rate, steps, 1, sampling="poisson", denominator="fixed", assumed=assumed)


def _show(name: str, bound: Bound, extra: Mapping[str, Any], json: bool) -> None:
    value = bound.value if np.isfinite(bound.value) else None
    if json:
        document = {
            name: value,
            "value": value,
            "status": bound.status.value,
            "formula": bound.formula,
            "assumptions": list(bound.assumptions),
            **extra,
        }
        console.print_json(document)
        return
    shown = "no finite value" if value is None else f"{value:.6g}"
    lines = [
        f"{name.replace('_', ' ')}  {shown}",
        f"status  {bound.status.value}",
        f"formula  {bound.formula}",
    ]
    lines += [f"  - {each}" for each in bound.assumptions]
    console.out.print("\n".join(lines), soft_wrap=True, markup=False)
