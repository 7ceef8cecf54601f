"""`remanence trace`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from remanence.cli import console

app = App(name="trace")


@app.default
def trace(
    checkpoints: Path,
    /,
    *,
    data: str,
    model: str,
    out: Path,
    data_dir: Path | None = None,
    option: Annotated[list[str] | None, Parameter(negative="")] = None,
    batch_size: int = 128,
    total_steps: int | None = None,
    noise: float = 0.0,
    sigma: float = 0.1,
    sampling: Literal["shuffled", "poisson"] = "shuffled",
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Make a trace afterwards, from saved state dicts.

    Reads `.safetensors` and `.pt` files whose names end in their step, or the checkpoints of a run trained with
    --keep-checkpoints, and writes a run folder with the trace that scores are computed from.

    Example:

    `remanence trace checkpoints/ --data cifar10 --model my.module:make_model --batch-size 128 --out traced`

    Parameters
    ----------
    checkpoints:
        A folder of state dicts, or a run.
    data:
        A data set's name or path.
    model:
        A model's name, or your own as package.module:function.
    out:
        The folder to write.
    data_dir:
        Where data sets lie.
    option:
        An option of the model, name=value; may be given several times.
    batch_size:
        That training used.
    total_steps:
        Steps that training took; the last checkpoint's by default.
    noise:
        Noise that training really added to the mini-batch gradient.
    sigma:
        Noise to assume in the accounting when none was added.
    sampling:
        How training drew its batches.
    json:
        Print the outcome as one JSON document.
    """
    from remanence.data import load_dataset
    from remanence.models import build_model, parse_options
    from remanence.storage import create, write_trace
    from remanence.tasks.recipe import couples_examples
    from remanence.training import Recipe, joined
    from remanence.training.posthoc import saved_checkpoints, trace_checkpoints
    from remanence.types import Mechanism

    saved = saved_checkpoints(checkpoints)
    train, _ = load_dataset(data, data_dir)
    built = build_model(model, train, **parse_options(option or ()))
    steps = total_steps or max(max(saved), 1)
    recipe = Recipe(epochs=1, learning_rate=1.0, batch_size=batch_size, noise=noise, sampling=sampling)
    like = recipe.mechanism(len(train), assumed_sigma=sigma)
    mechanism = Mechanism(
        **{**vars(like), "steps": steps, "couples_examples": couples_examples(built.modules())}
    )
    with joined() as ranks, console.progress_bar(show=ranks.first) as bar:
        task = bar.add_task("Recording", total=len(saved))
        made = trace_checkpoints(
            built,
            train,
            saved,
            mechanism=mechanism,
            provenance={"data": train.digest()},
            ranks=ranks,
            progress=lambda done, total: bar.update(task, completed=done),
        )
        if not ranks.first:
            return
        with create(out, "training") as draft:
            write_trace(draft, made)
            draft.config({"data": data, "model": model, "checkpoints": str(checkpoints)})
    facts = {"run": str(out), "checkpoints": made.steps.tolist(), "examples": len(made.ids)}
    if json:
        console.print_json(facts)
    else:
        console.out.print(f"Recorded {len(saved)} checkpoints of {len(made.ids)} examples in {out}.")
