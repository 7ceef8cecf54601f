"""Check and complete what a recorder is given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.utils.data import Dataset

from remanence.batches import take, tensors_of
from remanence.data import Examples
from remanence.errors import DataError, InputError, RunFolderError
from remanence.storage import SEAL
from remanence.tasks import ASSUMED_SIGMA, Task, as_examples
from remanence.tasks.recipe import couples_examples
from remanence.training.sharded import refuse_wrapped
from remanence.types import Mechanism


def examples_to_record(examples: Examples | Dataset[Any] | None, task: Task | None) -> Examples:
    if examples is None:
        if task is None:
            raise InputError("Give `examples` or `task`: the recorder must know the training examples.")
        return task.train
    loaded = as_examples(examples)
    return loaded if task is None else loaded.with_readout(task.train.readout)


def checked_mechanism(
    mechanism: Mechanism | None, task: Task | None, n: int, model: nn.Module, total_steps: int
) -> Mechanism:
    if mechanism is None:
        if task is None or task.fit is not None:
            raise InputError(
                "Give the `mechanism`: how training draws batches and which noise it adds. Scores cannot be computed "
                "without it."
            )
        mechanism = task.recipe.mechanism(n, assumed_sigma=ASSUMED_SIGMA, model=model)
    if mechanism.steps != total_steps:
        raise InputError(
            f"`mechanism` and `total_steps` must agree on the number of optimizer steps; got {mechanism.steps} and "
            f"{total_steps}."
        )
    return mechanism


def can_fly(model: nn.Module, in_flight: bool | None) -> bool:
    """Whether norms can be measured in flight; an error if they must be and cannot."""
    coupled = couples_examples(model.modules())
    if in_flight and coupled:
        raise InputError(
            "Norms in flight need a model whose layers do not couple examples; this one has BatchNorm. Use GroupNorm, "
            "or leave `in_flight` out: the recorder then evaluates the model in evaluation mode."
        )
    if in_flight:
        refuse_wrapped(model)
    return not coupled if in_flight is None else in_flight


def rows_of(outputs: Sequence[Any], rows: Tensor, n: int) -> Any:
    """What the model returned for some examples of a batch of n."""
    if not outputs:
        raise InputError("The model must run inside the `batch` block; it was not called.")
    sizes = {len(part) for part in tensors_of(outputs[-1]) if part.dim()}
    if sizes and n not in sizes:
        raise DataError(f"Expected one id per example of the batch, {max(sizes)}; got {n}.")
    return outputs[-1] if len(rows) == n else take(outputs[-1], rows.to(tensors_of(outputs[-1])[0].device))


def check_folder(out: Path, *, resumed: bool) -> None:
    """Refuse a folder that holds a finished run or, for a new recording, files that no recorder has written."""
    if (out / SEAL).exists():
        raise RunFolderError(f"{out} holds a finished run; pass a new folder as `out`. Nothing was changed.")
    if resumed:
        return
    others = [path.name for path in out.iterdir() if path.name != "rows"] if out.is_dir() else []
    inside = list((out / "rows").iterdir()) if (out / "rows").is_dir() else []
    others += [f"rows/{path.name}" for path in inside if not path.name.startswith(("step-", ".partial-"))]
    if others:
        raise RunFolderError(
            f"`out` must be a new folder, or that of an interrupted recording; {out} holds {sorted(others)[0]}. "
            "Nothing was changed."
        )
