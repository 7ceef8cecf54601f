"""What an evaluation costs: every metric at once beside one plain forward pass over the same examples.

    make bench-audit

Plain passes and evaluations take turns, so that both meet the same machine. Reported are the median of the ratios, by
processor time, and the ratio of the fastest of each, which a busy machine disturbs least and which the limit is for.
The limit is for the metrics of one evaluation; those that read shadow models or relearned copies, and GUS, which needs
input gradients, are timed on top of them. Canaries pass through the model on their own. Barriers, relearning and the
training of shadow models are no part of an evaluation.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from remanence.audit import METRICS, Context, ShadowTable, evaluate
from remanence.audit.relearning import Recovery, Relearned
from remanence.data import Examples, Split, digits
from remanence.models import resnet18, small_conv, vit_small
from remanence.tasks.poison import draw_poison
from remanence.types import ForgetSet

LIMIT = 1.3
ORACLES = 5
"""The fewest that every metric below can use; KLOM needs as many models beside the evaluated one."""
APART = ("shadows", "relearning", "poison", "canaries")
"""Metrics that read other models, or pass examples of their own through the model."""
MORE_ORACLES = ("mmd_p",)
"""Needs 19 oracles; what it reads of the model is shared with `relative_mmd`."""


class Counted(nn.Module):
    """Counts the examples that go through a model."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.examples = inner, 0

    def forward(self, x: Tensor) -> Tensor:
        self.examples += len(x)
        out: Tensor = self.inner(x)
        return out


def pictures(n_train: int, n_test: int) -> tuple[Examples, Examples]:
    draw = torch.Generator().manual_seed(0)
    sizes, classes = (n_train, n_test), tuple(map(str, range(10)))
    made = [
        Examples(
            np.arange(n) + 1_000_000 * i,
            torch.rand(n, 3, 32, 32, generator=draw),
            torch.randint(10, (n,), generator=draw),
            classes,
        )
        for i, n in enumerate(sizes)
    ]
    return made[0], made[1]


def cases(quick: bool) -> dict[str, tuple[nn.Module, Examples, Examples]]:
    scale = 4 if quick else 1
    images = pictures(1200 // scale, 400 // scale)
    return {
        "small_conv width 16, all of digits": (small_conv(), *digits()),
        "resnet18 width 16, 32×32": (resnet18(16), *images),
        "vit_small depth 6, dim 96, 32×32": (vit_small(6, 96, 6), *images),
    }


def timed(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def measure(model: nn.Module, train: Examples, test: Examples, repeats: int) -> dict[str, object]:
    forget = ForgetSet("f", train.ids[: len(train) // 12])
    split = Split(train, test, forget)
    counted = Counted(model).eval()
    draw = np.random.default_rng(0)
    first = np.stack([draw.permutation(len(forget.ids)) % 2 == 0 for _ in range(8)])
    member = np.stack([first, ~first], axis=1).reshape(16, -1)
    recovery = Recovery((0, 1), (0.5, 1.0), (0.0, 2.0))
    context = Context(
        oracles=tuple(evaluate(counted, split) for _ in range(ORACLES)),
        ensemble=tuple(evaluate(counted, split) for _ in range(ORACLES)),
        poison=draw_poison(train, forget.ids, seed=0),
        clean=train,
        shadows=ShadowTable(forget.ids, member, draw.normal(size=member.shape)),
        before=evaluate(counted, split),
        people={example: str(i % 50) for i, example in enumerate(train.ids.tolist())},
        relearned=Relearned((recovery,), recovery),
    )
    everything = torch.cat([split.forget.inputs, split.retain.inputs, split.test.inputs])
    quick = [
        metric for name, metric in METRICS.items() if metric.needs not in APART and name not in MORE_ORACLES
    ]
    others = [metric for metric in METRICS.values() if metric.needs in APART[:3]]

    @torch.no_grad()
    def plain() -> None:
        for batch in torch.split(everything, 256):
            counted(batch)

    def all_metrics() -> None:
        found = evaluate(counted, split, context)
        for metric in quick:
            metric(found)

    def with_others() -> None:
        found = evaluate(counted, split, context)
        for metric in (*quick, *others):
            metric(found)

    counts = {}
    for name, work in (("plain", plain), ("metrics", all_metrics), ("others", with_others)):
        counted.examples = 0
        work()  # also warms up
        counts[name] = counted.examples
    ratios: dict[str, list[float]] = {"metrics": [], "others": []}
    passes, evaluations = [], []
    for _ in range(max(repeats, 25) if len(everything) * everything[0].numel() < 200_000 else repeats):
        once = timed(plain)
        passes.append(once)
        evaluations.append(timed(all_metrics))
        ratios["metrics"].append(evaluations[-1] / once)
        ratios["others"].append(timed(with_others) / once)
    return {
        "examples": len(everything),
        "metrics": len(quick),
        "forget": len(forget.ids),
        "counted": counts,
        "pass_seconds": statistics.median(passes),
        "all_metrics_fastest": min(evaluations) / min(passes),
        "all_metrics": statistics.median(ratios["metrics"]),
        "all_metrics_range": [min(ratios["metrics"]), max(ratios["metrics"])],
        "with_others": statistics.median(ratios["others"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    results = {}
    for name, (model, train, test) in cases(options.quick).items():
        found = measure(model, train, test, options.repeats)
        results[name] = found
        low, high = found["all_metrics_range"]  # type: ignore[misc]
        print(
            f"{name}: {found['examples']} examples, a pass {found['pass_seconds']:.3f} s; "
            f"{found['metrics']} metrics {found['all_metrics']:.3f} passes "
            f"({low:.3f} … {high:.3f}; fastest {found['all_metrics_fastest']:.3f}), "
            f"{found['counted']['metrics']} examples through the model; "  # type: ignore[index]
            f"with shadows, relearning and GUS of {found['forget']} {found['with_others']:.3f}",
            flush=True,
        )
    document = {"limit": LIMIT, "torch": torch.__version__, "machine": platform.machine(), "cases": results}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "audit.json").write_text(json.dumps(document, indent=2) + "\n")
    over = [name for name, each in results.items() if each["all_metrics_fastest"] > LIMIT]  # type: ignore[operator]
    if over:
        raise SystemExit(f"above {LIMIT} passes: {', '.join(over)}")


if __name__ == "__main__":
    main()
