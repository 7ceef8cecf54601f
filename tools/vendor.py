"""Put the JavaScript that the dashboard ships into the package: fetched by npm, pinned, its digests written down."""

from __future__ import annotations

import hashlib
import json
import subprocess
import tarfile
import tempfile
from pathlib import Path

STATIC = Path(__file__).parents[1] / "src" / "remanence" / "web" / "static"
PACKAGES = {
    "htmx.org": ("2.0.11", "dist/htmx.min.js", "htmx.min.js"),
    "vega": ("6.4.0", "build/vega.min.js", "vega.min.js"),
    "vega-lite": ("6.4.3", "build/vega-lite.min.js", "vega-lite.min.js"),
    "vega-interpreter": ("2.3.2", "build/vega-interpreter.js", "vega-interpreter.js"),
}
"""Package: version, file in it, our name for that."""


def main() -> None:
    """Fetch every package, take its one file, and note where it came from."""
    noted, licences = {}, []
    with tempfile.TemporaryDirectory() as folder:
        for package, (version, inside, name) in PACKAGES.items():
            archive = _fetch(package, version, Path(folder))
            with tarfile.open(archive) as opened:
                content = _read(opened, inside)
                licences.append(f"{package} {version}\n\n{_read(opened, 'LICENSE').decode().strip()}\n")
            (STATIC / name).write_bytes(_ours(content))
            noted[name] = {
                "package": package,
                "version": version,
                "sha256": hashlib.sha256((STATIC / name).read_bytes()).hexdigest(),
            }
    (STATIC / "vendored.json").write_text(json.dumps(noted, indent=2) + "\n")
    (STATIC / "LICENSES.txt").write_text(f"\n{'-' * 80}\n\n".join(licences))


def _fetch(package: str, version: str, folder: Path) -> Path:
    command = ["npm", "pack", "--silent", f"{package}@{version}"]
    said = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    return folder / said.split()[-1]


def _read(opened: tarfile.TarFile, inside: str) -> bytes:
    member = opened.extractfile(f"package/{inside}")
    if member is None:
        raise SystemExit(f"{inside} is not a file of its package.")
    return member.read()


def _ours(content: bytes) -> bytes:
    """The interpreter is a module that imports vega-util by name; here it finds it in what vega brings. No maps."""
    lines = content.replace(b"from 'vega-util'", b"from './vega-util.js'").splitlines(keepends=True)
    return b"".join(line for line in lines if not line.startswith(b"//# sourceMappingURL"))


if __name__ == "__main__":
    main()
