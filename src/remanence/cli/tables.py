"""The options of a table of features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from remanence.cli.options import Several

if TYPE_CHECKING:
    from remanence.data import TableSettings


@Parameter(name="*", group="Table")
@dataclass(frozen=True)
class TableOptions:
    """How to read a .csv or .parquet table."""

    label_column: str = "label"
    """Column of the label."""
    label_kind: Literal["auto", "class", "number"] = "auto"
    """`class`, `number` (regression), or `auto`: words and up to 20 different whole numbers are classes, other numbers
    are a number."""
    id_column: str = "id"
    """Column of the ids; if there is none, an id is the number of the row, counted from 0."""
    split_column: str = "split"
    """Column that says train or test; if there is none, a hash of the person, or else of the id, decides."""
    user_column: str | None = None
    """Column of the person that a row belongs to; by default `user`, if there is one. All rows of one person are for
    training, or all for testing."""
    drop_columns: Annotated[list[str] | None, Several] = None
    """Columns to leave out. All columns without a role are features."""
    category_columns: Annotated[list[str] | None, Several] = None
    """Columns of numbers that are codes of categories. Columns of words are categories (one-hot) anyway."""
    missing: Literal["refuse", "median"] = "refuse"
    """Missing values: `refuse` them, or replace them by the `median` and add a feature that marks them."""
    standardize: bool = True
    """Scale number columns, and a label that is a number, to mean 0 and standard deviation 1 on the training rows."""

    def make(self, data: str) -> TableSettings | None:
        """The settings for a table; None if the data are no table and no option was given."""
        from remanence.data import TableSettings, is_table

        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in vars(self).items()
            if value is not None
        }
        return TableSettings(**values) if is_table(data) or self != TableOptions() else None
