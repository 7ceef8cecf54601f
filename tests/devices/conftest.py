"""The device under test: a pretended accelerator, or a real one named by REMANENCE_TEST_DEVICE (`make test-gpu`)."""

import importlib.util
import os
from pathlib import Path

import pytest
import torch

REAL = os.environ.get("REMANENCE_TEST_DEVICE", "")

if not REAL:
    _spec = importlib.util.spec_from_file_location(
        "pretend_device", Path(__file__).with_name("pretend_device.py")
    )
    assert _spec is not None
    assert _spec.loader is not None
    _spec.loader.exec_module(importlib.util.module_from_spec(_spec))


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device(REAL or "pretend")


@pytest.fixture(autouse=True)
def _math_attention() -> object:
    """The fused attention kernels of devices differ from the CPU's; the plain one is the same everywhere."""
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        yield
