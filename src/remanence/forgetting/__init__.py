"""Who goes: forget sets."""

from remanence.forgetting.choosing import WAYS, Wishes, choose
from remanence.forgetting.files import (
    ids_from_file,
    read_forget_set,
    read_forget_set_for,
    users_from_file,
    write_forget_sets,
)
from remanence.forgetting.selection import BAND_NAMES, bands, easiest, hardest, of_class, of_user, random_set

__all__ = [
    "BAND_NAMES",
    "WAYS",
    "Wishes",
    "bands",
    "choose",
    "easiest",
    "hardest",
    "ids_from_file",
    "of_class",
    "of_user",
    "random_set",
    "read_forget_set",
    "read_forget_set_for",
    "users_from_file",
    "write_forget_sets",
]
