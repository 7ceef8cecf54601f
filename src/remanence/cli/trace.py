"""`remanence trace`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from cyclopts import App

from remanence.cli import console
from remanence.cli.options import Data, DataDir, Json, Model, ModelOptions, Sigma

app = App(name="trace")


@app.default
def trace(
    checkpoints: Path,
    /,
    *,
    data: Data,
    model: Model,
    out: Path,
    data_dir: DataDir = None,
    options: ModelOptions = None,
    batch_size: int = 128,
    total_steps: int | None = None,
    noise: float = 0.0,
    sigma: Sigma = 0.1,
    sampling: Literal["shuffled", "poisson"] = "shuffled",
    json: Json = False,
) -> None:
    """Make a trace afterwards, from saved state dicts.

    Reads `.safetensors` and `.pt` files whose names end in their step, or the checkpoints of a run trained with
    `--keep-checkpoints`. Writes a run folder with the trace that scores are computed from.

    For example:

    `remanence trace checkpoints/ --data cifar10 --model my.module:make_model --batch-size 128 --out traced`

    Parameters
    ----------
    checkpoints:
        A folder of state dicts, or a run.
    out:
        Folder to write.
    batch_size:
        Batch size of the training.
    total_steps:
        Number of training steps; that of the last checkpoint by default.
    noise:
        Standard deviation of the noise that training really added to the mini-batch gradient.
    sampling:
        How training drew its batches.
    """
    from remanence.models import parse_options
    from remanence.training import TraceSettings, join_process_group, trace_run

    settings = TraceSettings(
        data=data,
        model=model,
        model_options=parse_options(options or ()),
        data_dir=None if data_dir is None else str(data_dir),
        batch_size=batch_size,
        total_steps=total_steps,
        noise=noise,
        sigma=sigma,
        sampling=sampling,
    )
    with join_process_group() as ranks, console.progress("Recording", show=ranks.first) as progress:
        made = trace_run(checkpoints, settings, out, ranks=ranks, progress=progress)
        if not ranks.first:
            return
    if json:
        console.print_json({"run": str(out), "checkpoints": made.steps.tolist(), "examples": len(made.ids)})
    else:
        console.out.print(
            f"Recorded {len(made.steps)} checkpoints of {len(made.ids)} examples in {out}.", soft_wrap=True
        )
