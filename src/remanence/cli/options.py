"""Options that several commands share, each with its help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

Several = Parameter(consume_multiple=True, negative="")
"""Values that follow each other: `--oracles a b c`."""
Paths = Annotated[list[Path] | None, Several]
Names = Annotated[list[str] | None, Several]
Repeated = Parameter(negative="")
"""An option that may be given several times: `--set a=1 --set b=2`."""

Flag = Annotated[bool, Parameter(negative="")]
Json = Annotated[bool, Parameter(negative="", help="Print the result as one JSON document.")]
Resume = Annotated[
    bool,
    Parameter(
        negative="", help="Continue from the last checkpoint, or start if there is nothing to continue."
    ),
]
Force = Annotated[bool, Parameter(negative="", help="Replace files that exist.")]
DataDir = Annotated[
    Path | None,
    Parameter(help="Folder of the named data sets; by default $REMANENCE_DATA, else ~/.cache/remanence."),
]
Workers = Annotated[int | None, Parameter(help="Number of processes; one per core by default.")]
ExecutorName = Annotated[
    Literal["process", "ray"], Parameter(help="Compute in processes of this machine, or on Ray.")
]
Address = Annotated[
    str | None,
    Parameter(help="Address of a running Ray cluster; by default Ray is started on this machine."),
]
LearningRate = Annotated[float | None, Parameter(name=["--learning-rate", "--lr"])]

Data = Annotated[
    str,
    Parameter(
        help="Name of a data set (digits, fashion-mnist, cifar10, svhn), or the path of an .npz pack, of a folder of "
        "images, or of a .csv or .parquet table."
    ),
]
_MODEL = (
    "Name of a model (logistic, mlp, small_conv, resnet18, vit_small), or your own as package.module:function"
)
Model = Annotated[str, Parameter(help=f"{_MODEL}.")]
DefaultModel = Annotated[
    str | None, Parameter(help=f"{_MODEL}; by default mlp for a table, resnet18 for images.")
]
ModelOptions = Annotated[
    list[str] | None,
    Parameter(
        name="--option",
        negative="",
        help="An option of the model, name=value (norm=group, depth=6); may be given several times.",
    ),
]
MethodOptions = Annotated[
    list[str] | None,
    Parameter(
        name="--option",
        negative="",
        help="A hyperparameter of the method, name=value (coefficient=1e-4, batch_size=64); may be given several "
        "times.",
    ),
]
Tuned = Annotated[
    Path | None,
    Parameter(
        help="The choice.json of `remanence tune`, with a method and its options; options given here take precedence."
    ),
]
TaskPath = Annotated[
    str | None,
    Parameter(help="Your own task, as package.module:name; this executes the module."),
]
Device = Annotated[
    str, Parameter(help="Where to compute: `auto`, or any device that torch knows (cpu, cuda:1, mps).")
]
Sample = Annotated[
    int | None, Parameter(help="Measure on at most this many retain and test examples; on all by default.")
]
Sigma = Annotated[float, Parameter(help="Noise to assume in the accounting if training adds none.")]
CheckpointEvery = Annotated[
    int, Parameter(help="Steps between checkpoints of the run's state; 0 for one checkpoint per epoch.")
]
Ids = Annotated[
    Path | None,
    Parameter(
        help="The examples to remove: a .csv, .parquet or .json file, a forget set, or text with one id per line."
    ),
]
IdLists = Annotated[
    list[Path] | None,
    Parameter(
        negative="",
        help="The examples to remove: a .csv, .parquet or .json file, a forget set, or text with one id per line. "
        "Several lists are several requests, which are unlearned together.",
    ),
]
User = Annotated[
    str | None,
    Parameter(
        help="Instead of --ids: the person whose examples to remove; the run's data must be a table with a column of "
        "persons."
    ),
]
IfUnknown = Annotated[
    Literal["refuse", "skip"],
    Parameter(
        help="What to do with ids in the list that the run was never trained on: refuse the list, or skip these ids."
    ),
]
IfRemoved = Annotated[
    Literal["refuse", "skip"],
    Parameter(
        help="What to do with ids in the list that were removed before: refuse the list, or skip these ids."
    ),
]
IdColumn = Annotated[str, Parameter(help="Column of the ids in a .csv or .parquet file.")]
SigningKey = Annotated[
    Path | None, Parameter(help="Ed25519 private key (PEM or OpenSSH) that signs the evidence.")
]
