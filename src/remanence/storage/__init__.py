"""Sealed folders: written completely or not at all, with a checksum per file and a format version."""

from remanence.storage.folder import SEAL, Draft, Folder, create, open_folder, seal_in_place, to_toml
from remanence.storage.traces import TRACE_FILES, read_trace, write_trace
from remanence.storage.unfinished import UNFINISHED, claim

__all__ = [
    "SEAL",
    "TRACE_FILES",
    "UNFINISHED",
    "Draft",
    "Folder",
    "claim",
    "create",
    "open_folder",
    "read_trace",
    "seal_in_place",
    "to_toml",
    "write_trace",
]
