"""Plans of requests, kept in memory for a while; nothing on disk is changed."""

from __future__ import annotations

import hashlib
import re
import tempfile
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from remanence.data.read_limits import UPLOAD_LIMITS
from remanence.errors import InputError, RemanenceError, RunFolderError
from remanence.requests import Plan, Request, make_plan, read_request
from remanence.requests.request import model_hash
from remanence.training import Run
from remanence.web.uploads import Form, printable

KEPT = 16
PASTED = "pasted.txt"
LONGEST_COLUMN = 100
_LONGEST_MESSAGE = 500


@dataclass(frozen=True, eq=False)
class PlannedRequest:
    """A request that was sent, and its plan.

    Args:
        key: name of the request; the same ids of the same model have the same key.
        file_name: name of the file with the ids.
        content: content of that file.
        column: name of the column with the ids, in a table.
        plan: the plan.
    """

    key: str
    file_name: str
    content: bytes
    column: str
    plan: Plan


class Plans:
    """The last few plans, in memory."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, str], PlannedRequest] = OrderedDict()
        self._lock = threading.Lock()

    def make(self, number: int, run: Run, form: Form) -> PlannedRequest:
        """Plan the request in a form; an error message is one sentence."""
        file_name, content = _file(run, form)
        column = printable(form.fields.get("column", ""), LONGEST_COLUMN) or "id"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / file_name
            path.write_bytes(content)
            try:
                request = read_request(path, run, column=column, limits=UPLOAD_LIMITS)
            except RemanenceError as error:
                raise InputError(_cut(str(error).replace(str(path), file_name))) from None
        plan = make_plan(run, request)
        planned = PlannedRequest(request_key(run, request), file_name, content, column, plan)
        with self._lock:
            self._kept[number, planned.key] = planned
            self._kept.move_to_end((number, planned.key))
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return planned

    def get(self, number: int, key: str) -> PlannedRequest:
        """A plan by its key; one that has been dropped must be made again."""
        with self._lock:
            planned = self._kept.get((number, key))
        if planned is None:
            raise RunFolderError("This plan is no longer kept; paste the ids again.")
        return planned

    def check(self, planned: PlannedRequest, run: Run) -> None:
        """Refuse a plan of a model that the run no longer holds."""
        if planned.plan.model != model_hash(run):
            raise InputError(
                "The run has changed since this was planned; plan it again. Nothing was changed."
            )


def request_key(run: Run, request: Request) -> str:
    """The same for the same ids of the same model."""
    text = "\n".join([model_hash(run), *sorted(map(str, request.ids.tolist()))])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _cut(text: str) -> str:
    """A message may quote what was uploaded, however long that is."""
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]} …"


def _file(run: Run, form: Form) -> tuple[str, bytes]:
    pasted = form.fields.get("ids", "").strip()
    if pasted and form.content:
        raise InputError("Paste ids or choose a file, not both.")
    if form.content:
        return form.file_name, form.content
    if not pasted:
        raise InputError("Paste at least one id, or choose a file that lists them.")
    numbers = run.clean[0].ids.dtype.kind == "i"
    # ids that are text may have blanks and commas inside
    entries = re.split(r"[\s,;]+", pasted) if numbers else [line.strip() for line in pasted.splitlines()]
    if entries[0] == "id" and len(entries) > 1:  # the header, copied with its column
        entries = entries[1:]
    return PASTED, "".join(f"{entry}\n" for entry in entries if entry).encode()
