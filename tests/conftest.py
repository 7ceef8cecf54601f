"""What all tests share: one thread a process, so that the same work gives the same bits on any machine."""

import os
import signal

import pytest

os.environ["OMP_NUM_THREADS"] = "1"  # for this process, before torch is loaded, and for those it starts
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # a suite started in the background ignores Ctrl-C, and so would the commands that it interrupts
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def tiny() -> list[str]:
    """Overrides that make any study a matter of seconds."""
    return [
        "seeds=1",
        "train.epochs=1",
        "train.record=1",
        "unlearn.epochs=1",
        "tune.learning_rates=[]",
        "audit.oracles=1",
        "audit.metrics=['ua']",
        "forget.sizes=[0.05]",
    ]
