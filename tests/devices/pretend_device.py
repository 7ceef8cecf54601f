"""A pretended accelerator: tensors that say `device="pretend:0"` and compute on the CPU.

`import pretend_device`, then `model.to("pretend")` and `x.to("pretend")` as with a GPU. An operation that mixes its
tensors with CPU tensors raises, as CUDA does, so device handling can be tested on a machine without a GPU, and the
numbers can be compared with the CPU's. Tried with torch 2.13: convolutions, BatchNorm in training, a transformer layer,
embeddings, cross-entropy, backward, SGD, AdamW, state dicts (equal to the CPU; 1e-3 through attention, whose kernel
differs). Not there: `torch.Generator(device="pretend")` and autocast. Extend it where an operation is missing.
"""

import torch
import torch.utils._pytree as pytree
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend("pretend")
torch.__future__.set_overwrite_module_params_on_conversion(True)  # so that `model.to` replaces the parameters
DEVICE = torch.device("pretend", 0)
_CROSSES = {"aten::copy_", "aten::_to_copy", "aten::_copy_from"}


class Far(torch.Tensor):
    """A tensor on the pretended device; `near` is where its numbers really are."""

    @staticmethod
    def __new__(cls, near):
        far = torch.Tensor._make_wrapper_subclass(
            cls,
            near.size(),
            strides=near.stride(),
            storage_offset=near.storage_offset(),
            dtype=near.dtype,
            device=DEVICE,
        )
        far.near = near
        return far

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        return _run(operation, *args, **(kwargs or {}))

    def __repr__(self):
        return f"Far({self.near})"


def _run(operation, *args, **kwargs):
    name = operation._schema.name
    flat, shape = pytree.tree_flatten((args, kwargs))
    far = [value for value in flat if isinstance(value, Far)]
    if far and name not in _CROSSES:
        for value in flat:
            if isinstance(value, torch.Tensor) and not isinstance(value, Far) and value.dim() > 0:
                raise RuntimeError(
                    f"{name}: expected all tensors on one device, found {DEVICE} and {value.device}"
                )
    stays_far = bool(far)
    if kwargs.get("device") is not None:
        stays_far = torch.device(kwargs["device"]).type == DEVICE.type
    near = [value.near if isinstance(value, Far) else value for value in flat]
    near = [
        torch.device("cpu") if isinstance(value, torch.device) and value.type == DEVICE.type else value
        for value in near
    ]
    near_args, near_kwargs = pytree.tree_unflatten(near, shape)
    result = operation(*near_args, **near_kwargs)
    if name.endswith("_") and not name.endswith("__") and args and isinstance(args[0], torch.Tensor):
        return args[0]  # in place
    known = {id(tensor.near): tensor for tensor in far}

    def wrap(value):
        if not (isinstance(value, torch.Tensor) and stays_far):
            return value
        return known[id(value)] if id(value) in known else Far(value)

    return pytree.tree_map(wrap, result)


def _empty(size, *, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
    return Far(torch.empty(size, dtype=dtype, memory_format=memory_format or torch.contiguous_format))


def _empty_strided(size, stride, *, dtype=None, layout=None, device=None, pin_memory=None):
    return Far(torch.empty_strided(size, stride, dtype=dtype))


def _copy_from(source, target, non_blocking=False):
    a, b = (value.near if isinstance(value, Far) else value for value in (source, target))
    b.copy_(a)
    return target


_everything = torch.library.Library("_", "IMPL")
_everything.fallback(_run, "PrivateUse1")
_aten = torch.library.Library("aten", "IMPL")
_aten.impl("empty.memory_format", _empty, "PrivateUse1")
_aten.impl("empty_strided", _empty_strided, "PrivateUse1")
_aten.impl("_copy_from", _copy_from, "PrivateUse1")
