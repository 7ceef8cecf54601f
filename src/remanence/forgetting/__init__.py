"""Forget sets: select them, write them and read them."""

from remanence.forgetting.forget_set_files import (
    ids_from_file,
    read_forget_set,
    read_forget_set_for,
    read_id_list,
    users_from_file,
    write_forget_sets,
)
from remanence.forgetting.selection import (
    BAND_NAMES,
    SELECTION_RULES,
    alike,
    bands,
    choose,
    easiest,
    examples_of_user,
    hardest,
    of_class,
    of_user,
    random_set,
    select_forget_sets,
)

__all__ = [
    "BAND_NAMES",
    "SELECTION_RULES",
    "alike",
    "bands",
    "choose",
    "easiest",
    "examples_of_user",
    "hardest",
    "ids_from_file",
    "of_class",
    "of_user",
    "random_set",
    "read_forget_set",
    "read_forget_set_for",
    "read_id_list",
    "select_forget_sets",
    "users_from_file",
    "write_forget_sets",
]
