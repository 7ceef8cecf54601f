"""What was learned about a model, kept from one call to the next while the model lives and stays the same.

A single call otherwise records one example and checks two against the loop, which costs as much as the batch itself.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from remanence.gradients.norm_engine import Learned, NormEngine

_MEMORIES_PER_MODEL = 4
"""For callers that alternate between a few losses or choices of parameters."""
_lock = threading.Lock()
_memories: weakref.WeakKeyDictionary[nn.Module, dict[object, _Memory]] = weakref.WeakKeyDictionary()


class _Memory:
    """What was learned, for one loss, which is only referred to weakly: it may hold the model."""

    def __init__(self, loss: Callable[..., Any], learned: Learned) -> None:
        self.loss, self.learned = weakref.ref(loss), learned


@contextmanager
def remembering(engine: NormEngine) -> Iterator[None]:
    """Give the engine what earlier ones learned, and keep what it has learned if the block succeeds.

    During the block nobody else has it: two threads with the same model each learn for themselves.
    """
    key = _signature(engine)
    with _lock:
        memory = _memories.get(engine.model, {}).pop(key, None)
    if memory is not None and memory.loss() is engine.loss:
        engine.recall(memory.learned)
    yield
    try:
        memory = _Memory(engine.loss, engine.learned)
    except TypeError:  # an object that cannot be referred to weakly
        return
    with _lock:
        kept = _memories.setdefault(engine.model, {})
        kept[key] = memory
        while len(kept) > _MEMORIES_PER_MODEL:
            kept.pop(next(iter(kept)))


def _signature(engine: NormEngine) -> object:
    """Everything about model and question that decides which calls a forward pass in evaluation mode makes."""
    return (
        id(engine.loss),
        engine.dtype,
        engine.by_parameter,
        tuple(_parameters(engine.parameters)),
        tuple(_modules(engine.model.modules())),
        torch.are_deterministic_algorithms_enabled(),
    )


def _parameters(parameters: Mapping[str, Tensor]) -> Iterator[object]:
    for name, parameter in parameters.items():
        yield name, id(parameter), parameter.shape, parameter.dtype, parameter.device


def _modules(modules: Iterable[nn.Module]) -> Iterator[object]:
    for module in modules:
        own = [
            (name, id(part), part is not None and part.requires_grad)
            for name, part in module._parameters.items()
        ]
        yield id(module), type(module), len(module._forward_hooks), tuple(own)
