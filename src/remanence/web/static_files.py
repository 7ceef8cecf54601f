"""Styles and scripts that come with the package; nothing else is ever sent from disk by name."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from fastapi import FastAPI, Response
from starlette.exceptions import HTTPException

_KINDS = {
    "style.css": "text/css",
    "htmx.min.js": "text/javascript",
    "vega.min.js": "text/javascript",
    "vega-lite.min.js": "text/javascript",
    "vega-interpreter.js": "text/javascript",
    "vega-util.js": "text/javascript",
    "scatter.js": "text/javascript",
    "notices.js": "text/javascript",
}


def add_static_files(app: FastAPI) -> None:
    @app.get("/static/{name}")
    async def static(name: str) -> Response:
        if name not in _KINDS:
            raise HTTPException(404)
        return Response(
            _content(name), media_type=_KINDS[name], headers={"Cache-Control": "private, max-age=60"}
        )


@cache
def _content(name: str) -> bytes:
    return (files("remanence.web") / "static" / name).read_bytes()
