"""Tasks that other processes find by their import path."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from remanence.errors import InputError
from remanence.models import import_object
from remanence.tasks.task import Task


def import_task(path: str) -> Task:
    """The task that an import path `package.module:name` names: a task, or a function that makes one.

    This executes the module. Check that its folder is trusted before.
    """
    named = import_object(path, "Task")
    task = _called(named, path) if callable(named) else named
    if not isinstance(task, Task):
        raise InputError(
            f"Task {path!r} must name a remanence.Task or a function that makes one; got a {type(task).__name__}."
        )
    object.__setattr__(task, "import_path", path)
    return task


def _called(function: Callable[..., Any], path: str) -> Any:
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise InputError(f"Task {path!r} must be callable without arguments; it is not: {error}.") from None
    return function()


def find_import_path(task: Task) -> str:
    """Where other processes find this task; empty if it is no variable of a module that can be imported.

    A script that runs as the main program is found by its file name: what it does must then be guarded by
    `if __name__ == "__main__"`, as for all programs with several processes.
    """
    if task.import_path:
        return task.import_path
    for name, module in list(sys.modules.items()):
        for variable, value in list(vars(module).items()) if hasattr(module, "__dict__") else ():
            if value is task and variable.isidentifier():
                module_name = _importable_name(name, variable)
                return f"{module_name}:{variable}" if module_name else ""
    return ""


def _importable_name(module: str, variable: str) -> str:
    if module != "__main__":
        return module
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if file is None or not _is_top_level(Path(file), variable):
        return ""  # made under `if __name__ == "__main__"`, which an import does not run
    if spec is not None:
        return str(spec.name)
    return Path(file).stem if Path(file).stem.isidentifier() else ""


def _is_top_level(file: Path, variable: str) -> bool:
    """Whether importing this file makes the variable: an assignment at the top level of the module does."""
    try:
        statements = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return False
    targets = [
        target
        for statement in statements
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        for target in (statement.targets if isinstance(statement, ast.Assign) else [statement.target])
    ]
    return any(isinstance(target, ast.Name) and target.id == variable for target in targets)
