"""Accounting against one norm pass: 50,000 examples at 35 checkpoints, and ResNet-18 of width 64 over as many.

The norm pass is timed on a few examples and scaled to 50,000; both run on the same threads. Prints one JSON line.
"""

import argparse
import json
import time

import numpy as np
import torch

from remanence import Mechanism, example_gradient_norms, privacy_loss
from remanence.models import resnet18

EXAMPLES, CHECKPOINTS, STEPS = 50_000, 35, 58_650


def time_accounting(composition: str) -> float:
    norms = np.random.default_rng(0).gamma(2.0, 1.0, (CHECKPOINTS, EXAMPLES)).astype(np.float32)
    steps = np.linspace(0, STEPS, CHECKPOINTS + 1).round().astype(int)[1:]
    mechanism = Mechanism(0.01, 128 / EXAMPLES, STEPS, 128)
    start = time.perf_counter()
    privacy_loss(norms, steps=steps, mechanism=mechanism, composition=composition)
    return time.perf_counter() - start


def time_norm_pass(examples: int) -> float:
    """Seconds a norm pass over 50,000 images would take, from a warm pass over `examples`."""
    torch.manual_seed(0)
    model = resnet18(width=64).eval()
    inputs, labels = torch.randn(examples, 3, 32, 32), torch.randint(10, (examples,))
    example_gradient_norms(model, inputs[:8], labels[:8])
    start = time.perf_counter()
    example_gradient_norms(model, inputs, labels)
    return (time.perf_counter() - start) * EXAMPLES / examples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=64, help="images in the timed norm pass")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    seconds = {name: time_accounting(name) for name in ("pathwise", "stepwise", "printed", "accountant")}
    norm_pass = time_norm_pass(options.examples)
    print(
        json.dumps(
            {
                "examples": EXAMPLES,
                "checkpoints": CHECKPOINTS,
                "accounting_seconds": seconds,
                "norm_pass_seconds": norm_pass,
                "norm_pass_measured_on": options.examples,
                "ratio": {name: value / norm_pass for name, value in seconds.items()},
            }
        )
    )


if __name__ == "__main__":
    main()
