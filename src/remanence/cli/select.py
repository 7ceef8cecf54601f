"""`remanence select`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from remanence.cli import console
from remanence.cli.options import DataDir, Force, Json

app = App(name="select")
Rule = Literal["bands", "hardest", "easiest", "random", "class", "ids", "user"]


@app.default
def select(
    source: Path,
    /,
    *,
    how: Rule,
    out: Path,
    size: int | None = None,
    score: str | None = None,
    alpha: float = 8.0,
    sigma: float | None = None,
    seed: int = 0,
    data: str | None = None,
    data_dir: DataDir = None,
    class_name: Annotated[str | None, Parameter(name="--class")] = None,
    ids: Path | None = None,
    users: Path | None = None,
    user: str | None = None,
    id_column: str = "id",
    user_column: str = "user",
    force: Force = False,
    json: Json = False,
) -> None:
    """Select a forget set and save it to a file.

    `bands` selects five sets of increasing difficulty and writes five files: OUT with the name of each band added.

    For example:

    `remanence select run --how bands --size 100 --out sets/band.json`

    `remanence select scores.csv --how hardest --size 1000 --score privacy_loss --out hardest.json`

    `remanence select run --how class --class cat --out cats.json`

    `remanence select run --how user --user ann --out ann.json`

    Parameters
    ----------
    source:
        A run folder with a trace, or a table of scores made by `remanence score`.
    how:
        Rule: by score (bands, hardest, easiest), at random (random), by class, by a list (ids), or by person (user).
    out:
        File to write, .json.
    size:
        Number of examples; with `class`, all of them by default.
    score:
        Name of the score; the privacy loss by default.
    alpha:
        Rényi order of the privacy loss, if SOURCE is a run.
    sigma:
        Noise level of the privacy loss, if SOURCE is a run; the run's own by default.
    seed:
        Random seed of the selection.
    data:
        With `class`: the data set that the run was trained on, a name or a path; by default the run's own.
    class_name:
        With `class`: the name of the class.
    ids:
        With `ids`: a .csv, .parquet or .json file, or text with one id per line.
    users:
        With `user`: a .csv or .parquet table with the person of each example; by default the table that the run was
        trained on.
    user:
        With `user`: the person.
    id_column:
        Column of the ids in --ids and --users.
    user_column:
        Column of the persons in --users.
    """
    from remanence.forgetting import select_forget_sets, write_forget_sets

    sets, digest = select_forget_sets(
        source,
        how,
        score=score,
        alpha=alpha,
        sigma=sigma,
        data=data,
        data_dir=data_dir,
        size=size,
        seed=seed,
        class_name=class_name,
        ids=ids,
        users=users,
        user=user,
        id_column=id_column,
        user_column=user_column,
    )
    files = write_forget_sets(out, sets, data=digest, force=force)
    rows = [
        {
            "name": forget_set.name,
            "size": len(forget_set.ids),
            "provenance": forget_set.provenance,
            "file": str(file),
        }
        for forget_set, file in zip(sets, files, strict=True)
    ]
    if json:
        console.print_json({"source": str(source), "how": how, "forget_sets": rows})
        return
    for row in rows:
        sentence = f"{row['name']}: {row['provenance']}, in {row['file']}"
        console.out.print(sentence, soft_wrap=True, markup=False)
