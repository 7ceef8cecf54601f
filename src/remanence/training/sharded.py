"""The whole module behind a wrapper for several processes, to record it in the user's own loop.

Supported: `DistributedDataParallel`, `DataParallel`, `torch.compile`, and parameters that are sharded by
`FullyShardedDataParallel` (FSDP1), `fully_shard` (FSDP2) or as DTensors. A sharded model is recorded in a whole copy
that every process holds while it records its share of the examples; the task builds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from remanence.batches import device_of
from remanence.errors import InputError
from remanence.gradients.evaluation_mode import keeping_buffers
from remanence.tasks import Task
from remanence.training.ranks import SINGLE_PROCESS, Ranks

_WRAPPERS = ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod.")
"""Parts that wrappers add to the names of parameters."""


def ranks_of(model: nn.Module) -> Ranks:
    """The processes that train this model together: all, if it is under DDP or FSDP; otherwise this one alone."""
    together = _ddp(model)
    if together is None and not _is_sharded(model):
        return SINGLE_PROCESS
    ranks = Ranks(dist.get_rank(), dist.get_world_size())
    if together is not None and together.process_group.size() != ranks.size:
        raise InputError(
            f"The process group of DistributedDataParallel must hold all {ranks.size} processes to be recorded; it "
            f"holds {together.process_group.size()}."
        )
    return ranks


def check_recordable(model: nn.Module, task: Task | None) -> None:
    """Refuse models whose parameters cannot be made whole here."""
    if any(hasattr(parameter, "ds_id") for parameter in model.parameters()):
        raise InputError(
            "A model under DeepSpeed ZeRO-3 cannot be recorded; expected a plain model, or one under "
            "DistributedDataParallel, FullyShardedDataParallel or fully_shard."
        )
    if _is_sharded(model) and task is None:
        raise InputError(
            "A model whose parameters are sharded must be recorded with `task`, whose `model` builds the whole module."
        )


@contextmanager
def whole_model(model: nn.Module, task: Task | None, ranks: Ranks) -> Iterator[nn.Module]:
    """The plain module with whole parameters during the block; every process must enter it.

    Buffers, such as the statistics of BatchNorm, are those of the first process, as in a checkpoint that it saves.
    The model itself is not changed.

    Args:
        model: the model as the user's loop has it.
        task: builds the whole module of a sharded model.
        ranks: the processes that share the work.
    """
    inner = _unwrapped(model)
    module = _whole_copy(inner, task) if _is_sharded(inner) else inner
    with keeping_buffers(module):
        ranks.copy_from_first(module.buffers())
        yield module


def _unwrapped(model: nn.Module) -> nn.Module:
    """The module inside wrappers that leave its parameters as they are."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if isinstance(model, DistributedDataParallel | DataParallel):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def _ddp(model: nn.Module) -> DistributedDataParallel | None:
    while not isinstance(model, DistributedDataParallel):
        inner = getattr(model, "_orig_mod", None)
        if not isinstance(inner, nn.Module):
            return None
        model = inner
    return model


def _is_sharded(model: nn.Module) -> bool:
    if not dist.is_available():
        return False
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.tensor import DTensor

    return any(isinstance(module, FullyShardedDataParallel) for module in model.modules()) or any(
        isinstance(parameter, DTensor) for parameter in model.parameters()
    )


def _whole_copy(model: nn.Module, task: Task | None) -> nn.Module:
    """A new module with the whole parameters of a sharded one, gathered from all processes."""
    assert task is not None  # `check_recordable` refuses it
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    weights: dict[str, Any] = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    copy = task.new_model(0).to(device_of(model))
    try:
        copy.load_state_dict(weights)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise InputError(
            f"`task` must build the module that is trained; it builds another one: {reason}"
        ) from None
    copy.train(model.training)
    _freeze_alike(model, copy)
    return copy


def _freeze_alike(model: nn.Module, copy: nn.Module) -> None:
    """Give the parameters of the copy the `requires_grad` of the sharded ones."""
    trained = {_plain_name(name): parameter.requires_grad for name, parameter in model.named_parameters()}
    if any("_flat_param" in name for name in trained):
        if not all(trained.values()):
            raise InputError(
                "FullyShardedDataParallel with frozen parameters must have use_orig_params=True to be recorded; which "
                "parameters are frozen cannot be seen otherwise."
            )
        copy.requires_grad_(True)
        return
    for name, parameter in copy.named_parameters():
        parameter.requires_grad_(trained.get(name, True))


def _plain_name(name: str) -> str:
    for part in _WRAPPERS:
        name = name.replace(part, "")
    return name


def refuse_wrapped(model: nn.Module) -> None:
    """Refuse a model under DDP or FSDP where only a plain module will do."""
    if _ddp(model) is not None or _is_sharded(model):
        raise InputError(
            "`batch` and `in_flight` need a plain module; this one is under DistributedDataParallel or sharded. "
            "Without them the recorder makes passes of its own."
        )
