"""The run folder: write aside, rename into place, checksum, version."""
