"""`remanence select`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from remanence.cli import console

app = App(name="select")
Flag = Annotated[bool, Parameter(negative="")]
How = Literal["bands", "hardest", "easiest", "random", "class", "ids", "user"]


@app.default
def select(
    source: Path,
    /,
    *,
    how: How,
    out: Path,
    size: int | None = None,
    score: str | None = None,
    alpha: float = 8.0,
    sigma: float | None = None,
    seed: int = 0,
    data: str | None = None,
    data_dir: Path | None = None,
    class_: Annotated[str | None, Parameter(name="--class")] = None,
    ids: Path | None = None,
    users: Path | None = None,
    user: str | None = None,
    id_column: str = "id",
    user_column: str = "user",
    force: Flag = False,
    json: Flag = False,
) -> None:
    """Choose who is to be forgotten, and write it down as a small file that other commands read.

    `bands` makes five sets of rising difficulty and writes five files, OUT with each band's name added.

    Example:

    `remanence select run --how bands --size 100 --out sets/band.json`

    `remanence select scores.csv --how hardest --size 1000 --score privacy_loss --out hardest.json`

    `remanence select run --how class --data cifar10 --class cat --out cats.json`

    `remanence select run --how user --users people.csv --user ann --out ann.json`

    Parameters
    ----------
    source:
        A run folder with a trace, or a table of scores made by `remanence score`.
    how:
        By score (bands, hardest, easiest), by chance (random), by class, by a list (ids), by person (user).
    out:
        The file to write, .json.
    size:
        How many examples; with class, all of them by default.
    score:
        Which score; the privacy loss by default.
    alpha:
        Order of the privacy loss, for a run.
    sigma:
        Noise level of the privacy loss, for a run; its own by default.
    seed:
        Of what is drawn at random.
    data:
        With class: the data set that the run was trained on, a name or a path.
    data_dir:
        Folder of the named data sets.
    class_:
        With class: its name.
    ids:
        With ids: a .csv, .parquet or .json file, or text with one id per line.
    users:
        With user: a .csv or .parquet table that says whose each example is.
    user:
        With user: the person.
    id_column:
        Column of the ids in --ids and --users.
    user_column:
        Column of the persons in --users.
    force:
        Replace files that exist.
    json:
        Print one JSON document.
    """
    from remanence.data import load_dataset
    from remanence.errors import InputError
    from remanence.forgetting import choose, write_forget_sets
    from remanence.scores import scores_from

    scores, digest = scores_from(source, score, alpha=alpha, sigma=sigma)
    if how == "class" and (data is None or class_ is None):
        raise InputError("--how class needs --data, the data set that the run was trained on, and --class.")
    sets = choose(
        how,
        scores,
        size=size,
        seed=seed,
        examples=load_dataset(data, data_dir)[0] if how == "class" and data is not None else None,
        digest=digest,
        class_name=class_,
        ids=ids,
        users=users,
        user=user,
        id_column=id_column,
        user_column=user_column,
    )
    files = write_forget_sets(out, sets, data=digest, force=force)
    rows = [
        {"name": each.name, "size": len(each.ids), "provenance": each.provenance, "file": str(file)}
        for each, file in zip(sets, files, strict=True)
    ]
    if json:
        console.print_json({"source": str(source), "how": how, "forget_sets": rows})
        return
    for row in rows:
        sentence = f"{row['name']}: {row['provenance']}, in {row['file']}"
        console.out.print(sentence, soft_wrap=True, markup=False)
