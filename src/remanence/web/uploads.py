"""Read the form of a browser; one that is too large is refused before it is stored anywhere."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import PurePath

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from remanence.data.read_limits import UPLOAD_LIMITS
from remanence.errors import InputError

LIMIT = UPLOAD_LIMITS.file_bytes
"""Bytes of a form: a hundred thousand long ids."""
SUFFIXES = (".csv", ".json", ".parquet", ".txt")


class TooLargeError(InputError):
    """More than a list of ids can need."""


@dataclass(frozen=True)
class Form:
    """A form that a browser sent.

    Args:
        fields: text fields by name.
        file_name: name of the uploaded file, made safe; empty without a file.
        content: content of that file.
    """

    fields: dict[str, str]
    file_name: str = ""
    content: bytes = b""


async def read_form(request: Request) -> Form:
    """The form of a request; one that is too large is read to its end, so that the browser shows our page, not kept."""
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise InputError("The form must come as multipart/form-data, as the page sends it.")
    parser = MultiPartParser(
        request.headers, _limited(request), max_files=1, max_fields=20, max_part_size=LIMIT
    )
    try:
        parts = await parser.parse()
    except MultiPartException:
        raise InputError("The form cannot be read; send it from the page.") from None
    except ClientDisconnect:  # nobody will read this
        raise InputError("The form was not sent to its end. Nothing was changed.") from None
    fields = {name: value for name, value in parts.multi_items() if isinstance(value, str)}
    for value in parts.values():
        if isinstance(value, UploadFile) and value.filename:
            content = await value.read()
            await value.close()
            return Form(fields, harmless(value.filename), content)
    return Form(fields)


def harmless(name: str) -> str:
    """A file's name that is only a name, of plain characters, with an ending that says how to read it."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", PurePath(name.replace("\\", "/")).stem).strip("-")
    suffix = PurePath(name).suffix.lower()
    return (plain[:60] or "ids") + (suffix if suffix in SUFFIXES else ".txt")


def printable(text: str, longest: int) -> str:
    """One line of text, cut off, without what no command could be given: zeros, bells and the like."""
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())[:longest]


async def _limited(request: Request) -> AsyncGenerator[bytes, None]:
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size <= LIMIT:
            yield piece
    if size > LIMIT:
        raise TooLargeError(
            f"A list of ids must be at most {LIMIT >> 20} MB; this is {size / (1 << 20):.0f} MB. Nothing was changed."
        )
