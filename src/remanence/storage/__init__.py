"""The run folder: write aside, rename into place, checksum, version."""

from remanence.storage.folder import Draft, Folder, create, open_folder
from remanence.storage.traces import read_trace, write_trace

__all__ = ["Draft", "Folder", "create", "open_folder", "read_trace", "write_trace"]
