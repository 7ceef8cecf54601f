"""Evaluation mode for a while: modules' modes and buffers are restored afterwards.

Modes, buffers and `.grad` belong to the model, so threads that share a model take turns.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

_registry_lock = threading.Lock()
_model_locks: weakref.WeakKeyDictionary[nn.Module, threading.RLock] = weakref.WeakKeyDictionary()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put the model in evaluation mode; restore the mode and the buffers of every module afterwards.

    Another thread that evaluates the same model waits until this one is done.
    """
    with _registry_lock:
        turn = _model_locks.setdefault(model, threading.RLock())
    with turn:
        training = [module for module in model.modules() if module.training]
        if training:
            model.eval()
        try:
            with keeping_buffers(model):
                yield
        finally:
            for module in training:
                module.training = True


@contextmanager
def keeping_buffers(model: nn.Module) -> Iterator[None]:
    """Restore all buffers afterwards, replaced ones too."""
    buffers = [
        (module, name, buffer, buffer.clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    try:
        yield
    finally:
        for module, name, buffer, before in buffers:
            module._buffers[name] = buffer
            if not torch.equal(buffer, before):  # for example a counter in the forward pass
                with torch.no_grad():
                    buffer.copy_(before)
