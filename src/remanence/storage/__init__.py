"""The run folder: write aside, rename into place, checksum, version."""

from remanence.storage.folder import SEAL, Draft, Folder, create, open_folder, seal_in_place, to_toml
from remanence.storage.traces import read_trace, write_trace

__all__ = [
    "SEAL",
    "Draft",
    "Folder",
    "create",
    "open_folder",
    "read_trace",
    "seal_in_place",
    "to_toml",
    "write_trace",
]
