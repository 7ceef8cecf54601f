"""How often each verdict rule is wrong without an effect, and how often it decides with one.

Every rule that gives a verdict is simulated. Without an effect (for claims of equality: at the margin, which is the
hardest case) it says *agrees* and *disagrees* in at most 5 % of studies each; with an effect it finds it. Run this file
to print the table of docs/theory/verdicts.md.
"""

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import remanence.study.figures
from remanence.experiments import Duration
from remanence.scores import PROXIES
from remanence.study import unlearning_times
from remanence.study.figures import (
    barriers,
    curves,
    group_loss,
    hardest,
    pictures,
    predictors,
    proxies,
    rankings,
    sizes,
)
from remanence.study.results import Verdict
from remanence.study.significance import sign_flip
from remanence.study.unlearning_times import Timed, rising

pytestmark = pytest.mark.sweep  # half a minute of one core
Generator = np.random.Generator
STUDIES = 600
BANDS, LIMIT, EVERY = 5, 12.0, 0.25


def timed(seed: int, band: int, time: float, *, size: int = 10, score: str = "privacy_loss") -> Timed:
    """A run as it is measured: at evaluations only, and not beyond the limit."""
    seen = max(0.0, EVERY * np.ceil(time / EVERY))
    role = {"seed": seed, "set": str(band), "size": size, "score": score}
    return Timed(role, "ua", 10.0**band, Duration(min(seen, LIMIT), bool(seen <= LIMIT)), LIMIT)


def times_rule(rng: Generator, seeds: int, effect: float) -> Verdict:
    """Seeds differ, a tenth of the runs is slow and many are not finished at the limit."""
    runs = []
    for seed in range(seeds):
        base = rng.uniform(4, 10)
        for band in range(BANDS):
            time = base + effect * (band - (BANDS - 1) / 2) + rng.normal() + 6 * (rng.random() < 0.1)
            runs.append(timed(seed, band, time))
    return rising(runs, "")


def sizes_rule(rng: Generator, seeds: int, effect: float) -> Verdict:
    runs = []
    for seed in range(seeds):
        base = rng.uniform(1, 4)
        for size, gap in ((10, 3.0), (20, 3.0 - 2 * effect)):
            runs += [timed(seed, band, base + gap * band + rng.normal(), size=size) for band in (0, 1)]
    return sizes._fades(runs)


def hardest_rule(rng: Generator, seeds: int, effect: float) -> Verdict:
    scores = ["privacy_loss", "error_norm", "confidence"]
    runs = []
    for seed in range(seeds):
        base = rng.uniform(4, 10)
        runs += [
            timed(seed, 0, base + (2 * effect if score == scores[0] else 0) + rng.normal(), score=score)
            for score in scores
        ]
    return hardest._verdict(runs, "ua", 10, scores)


def correlations(rng: Generator, seeds: int, mean: float) -> list[float | None]:
    return [float(value) for value in mean + 0.05 * rng.normal(size=seeds)]


def strong_rule(rng: Generator, seeds: int, effect: float) -> Verdict:
    """One proxy at the threshold, the others clearly above it: the hardest case for both words."""
    found = {"error_norm": correlations(rng, seeds, 0.5 + 0.1 * effect), "confidence": [0.9] * seeds}
    return proxies._all_correlate(found)


def best_rule(rng: Generator, seeds: int, effect: float) -> Verdict:
    found = {
        "gradient_norm_mean": correlations(rng, seeds, 0.7 + 0.1 * effect),
        "error_norm": correlations(rng, seeds, 0.7),
    }
    return proxies._mean_is_best(found)


def predicted(rng: Generator, seeds: int, own: float) -> predictors.Rows:
    """The corrected loss has the correlation `own` with each target, the proxies 0.2."""
    means = dict.fromkeys(predictors._NAMES, own) | dict.fromkeys(PROXIES, 0.2)
    return {
        name: {target: correlations(rng, seeds, mean) for target in predictors._TARGETS}
        for name, mean in means.items()
    }


def slower_rule(rng: Generator, seeds: int, effect: float) -> Verdict:
    return predictors._above(predicted(rng, seeds, 0.1 * effect), "slower", "")


def predicts_better_rule(rng: Generator, seeds: int, effect: float) -> Verdict:
    return predictors._better(predicted(rng, seeds, 0.2 + 0.15 * effect))


def stable_rule(rng: Generator, seeds: int, effect: float) -> Verdict:
    return predictors._stable(correlations(rng, seeds, predictors._STABLE + 0.1 * effect))


def rankings_rule(rng: Generator, seeds: int, effect: float) -> Verdict:
    return rankings._verdict({"1 and 2": correlations(rng, seeds, rankings._STRONG + 0.1 * effect)})


def measured_barriers(
    rng: Generator, models: int, before: float, after: float
) -> dict[str, list[list[float]]]:
    """Barriers have a part for each of the two models, so that those that share an oracle are not independent."""
    own = {kind: 0.1 * rng.normal(size=models) for kind in ("oracle", "model")}
    pairs = list(combinations(range(models), 2))

    def noise() -> float:
        return float(0.05 * rng.normal())

    def to_models(mean: float) -> list[list[float]]:
        return [
            [mean + own["oracle"][i] + own["model"][i] + noise() for i in range(models)] for _ in range(BANDS)
        ]

    base = [[1.0 + own["oracle"][a] + own["oracle"][b] + noise() for a, b in pairs] for _ in range(BANDS)]
    return {"before": to_models(before), "after": to_models(after), "baseline": base}


LOSSES = [float(band + 1) for band in range(BANDS)]


def alike_rule(rng: Generator, seeds: int, effect: float) -> Verdict:
    """At the margin, from above or below; twice as many oracles as other rules have seeds."""
    side = float(rng.choice([-1.0, 1.0]))
    after = 1 + side * barriers.MARGIN * (1 - effect)
    return barriers._verdicts("test", measured_barriers(rng, 2 * seeds, 3.0, after), LOSSES)[0]


def alike_by_seed_rule(rng: Generator, seeds: int, effect: float) -> Verdict:
    """Every seed has two oracles of its own; the barrier after unlearning shares one of them."""
    side = float(rng.choice([-1.0, 1.0]))
    mean = 1 + side * barriers.MARGIN * (1 - effect)
    shared = 0.05 * rng.normal(size=seeds)
    found = {
        kind: [(level + shared + 0.05 * rng.normal(size=seeds)).tolist() for _ in range(BANDS)]
        for kind, level in (("before", 3.0), ("after", mean), ("baseline", 1.0))
    }
    return barriers._verdicts("test", found, LOSSES, per_seed=True)[0]


def lowers_rule(rng: Generator, seeds: int, effect: float) -> Verdict:
    found = measured_barriers(rng, seeds, 1.0 + 0.05 * effect, 1.0)
    return barriers._verdicts("test", found, LOSSES)[1]


def grows_rule(rng: Generator, seeds: int, effect: float) -> Verdict:
    found = measured_barriers(rng, seeds, 1.0, 1.0)
    found["before"] = [
        [value + 0.05 * effect * band for value in values] for band, values in enumerate(found["before"])
    ]
    return barriers._verdicts("test", found, LOSSES)[2]


def ends_rule(rng: Generator, seeds: int, effect: float) -> Verdict:
    shift = float(rng.choice([-1.0, 1.0])) * 0.05 * (1 - effect)
    ends = [(0.9 + (shift if band else 0.0) + 0.02 * rng.normal(size=seeds)).tolist() for band in (0, 1)]
    return curves._alike_ends("ra", ends, 0.05)


def blind_rule(rng: Generator, seeds: int, effect: float) -> Verdict:
    shift = float(rng.choice([-1.0, 1.0])) * np.log(group_loss._FACTOR) * (1 - effect)
    estimates = [np.exp(shift * (band == 1) + 0.3 * rng.normal(size=seeds)).tolist() for band in (0, 1)]
    return group_loss._blind(estimates, [0, 0], [1.0, 2.0])


def sees_rule(rng: Generator, seeds: int, effect: float) -> Verdict:
    estimates = [[float(np.exp(effect * band + rng.normal()))] * seeds for band in range(BANDS)]
    return group_loss._sees(estimates, [0] * BANDS, LOSSES)


def pictures_rule(rng: Generator, seeds: int, effect: float) -> Verdict:
    """Pairs of runs that share half of their hardest tenth on average: the threshold."""
    n, hard = 400, 40
    tables = []
    for _ in range(seeds):
        common = rng.binomial(hard, 0.5 + 0.15 * effect)
        for first in (0, hard - common):
            ranks = rng.random(n)
            ranks[first : first + hard] += 1
            tables.append({"ids": np.arange(n), "privacy_loss": ranks})
    return pictures._shared(tables)


@dataclass(frozen=True)
class Simulated:
    """A rule on simulated numbers, and the function it is in; an effect of 1 makes its claim true, of −1 false."""

    rule: Callable[[Generator, int, float], Verdict]
    of: str


RULES = {
    "times grow with the loss": Simulated(times_rule, "unlearning_times.rising"),
    "the gap narrows with the size": Simulated(sizes_rule, "sizes._fades"),
    "the hardest take longest": Simulated(hardest_rule, "hardest._verdict"),
    "all proxies correlate strongly": Simulated(strong_rule, "proxies._all_correlate"),
    "the averaged norm is the best proxy": Simulated(best_rule, "proxies._mean_is_best"),
    "privacy loss goes with slowness": Simulated(slower_rule, "predictors._above"),
    "privacy loss predicts better": Simulated(predicts_better_rule, "predictors._better"),
    "the order is stable across runs": Simulated(stable_rule, "predictors._stable"),
    "rankings hardly depend on the noise": Simulated(rankings_rule, "rankings._verdict"),
    "the barrier after is alike": Simulated(alike_rule, "barriers._verdicts"),
    "the barrier after is alike, by seed": Simulated(alike_by_seed_rule, "barriers._verdicts"),
    "the barrier falls": Simulated(lowers_rule, "barriers._verdicts"),
    "the barrier grows with the loss": Simulated(grows_rule, "barriers._verdicts"),
    "easy and hard sets end alike": Simulated(ends_rule, "curves._alike_ends"),
    "the group bound is blind": Simulated(blind_rule, "group_loss._blind"),
    "the coupled bound sees": Simulated(sees_rule, "group_loss._sees"),
    "runs share their hardest": Simulated(pictures_rule, "pictures._shared"),
}
DELEGATE = {"curves._similar"}
"""Gathers the numbers of `curves._alike_ends`."""


def rates(rule: Simulated, seeds: int, effect: float, studies: int = STUDIES) -> tuple[float, float]:
    """How often the rule agrees and disagrees."""
    rng = np.random.default_rng(7)
    words = [rule.rule(rng, seeds, effect).agreement for _ in range(studies)]
    return words.count("agrees") / studies, words.count("disagrees") / studies


def test_every_rule_is_simulated() -> None:
    modules = [
        importlib.import_module(info.name)
        for info in pkgutil.iter_modules(remanence.study.figures.__path__, "remanence.study.figures.")
    ]
    named = set()
    for module in [*modules, unlearning_times]:
        for name, member in inspect.getmembers(module, inspect.isfunction):
            returned: Any = inspect.get_annotations(member).get("return", "")
            if member.__module__ == module.__name__ and "Verdict" in str(returned):
                named.add(f"{module.__name__.rsplit('.', 1)[1]}.{name}")
    assert named == {rule.of for rule in RULES.values()} | DELEGATE


@pytest.mark.parametrize("seeds", [5, 8])
@pytest.mark.parametrize("name", RULES)
def test_no_effect_is_rarely_found(name: str, seeds: int) -> None:
    most = binom.ppf(0.9999, STUDIES, 0.05) / STUDIES  # of a rule that errs in exactly 5 %
    agrees, disagrees = rates(RULES[name], seeds, 0.0)
    assert agrees <= most
    assert disagrees <= most


@pytest.mark.parametrize("name", RULES)
def test_an_effect_is_found_with_eight_seeds(name: str) -> None:
    agrees, disagrees = rates(RULES[name], 8, 1.0, 200)
    assert agrees >= 0.5
    assert disagrees <= 0.02
    agrees, disagrees = rates(RULES[name], 8, -1.0, 200)
    assert disagrees >= 0.5
    assert agrees <= 0.02


BY_SEED = [name for name in RULES if name != "the coupled bound sees"]
"""That one permutes forget sets, not seeds."""


@pytest.mark.parametrize("name", BY_SEED)
def test_three_seeds_never_decide(name: str) -> None:
    assert rates(RULES[name], 3, 3.0, 20) == (0.0, 0.0)


def test_the_model_before_unlearning_is_never_alike() -> None:
    rng = np.random.default_rng(0)
    words = []
    for _ in range(200):
        found = measured_barriers(rng, 12, 1.6, 1.6)
        words.append(barriers._verdicts("test", found, LOSSES)[0].agreement)
    assert "agrees" not in words
    assert words.count("disagrees") > 100


@pytest.mark.parametrize("count", [5, 9, 20])
def test_p_values_are_uniform_or_larger_with_ties_and_censoring(count: int) -> None:
    """At any level: exact for exchangeable pairs, whatever their distribution."""
    rng = np.random.default_rng(1)
    found = []
    for _ in range(1500):
        scores = np.round(rng.standard_cauchy(count) * 2) / 2  # ties, and very heavy tails
        found.append(sign_flip(np.clip(scores, -6, 6) * (rng.random(count) < 0.8)))
    p = np.array(found)
    for level in (0.01, 0.05, 0.2, 0.5):
        assert np.mean(p <= level) <= binom.ppf(0.9999, len(p), level) / len(p)


def table() -> str:
    """Error rates and power of every rule, as Markdown."""
    lines = [
        "| rule | seeds | no effect: agrees | no effect: disagrees | effect: agrees | opposite effect: disagrees |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, rule in RULES.items():
        for seeds in (5, 8, 10):
            null = (f"{100 * rate:.1f} %" for rate in rates(rule, seeds, 0.0, 2000))
            effect, opposite = rates(rule, seeds, 1.0, 500)[0], rates(rule, seeds, -1.0, 500)[1]
            cells = (*null, f"{100 * effect:.0f} %", f"{100 * opposite:.0f} %")
            lines.append(f"| {name} | {seeds} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
