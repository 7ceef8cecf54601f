"""Writers and holders of a lock that are killed at their work."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import remanence as rm
from remanence.storage import atomic
from remanence.storage.lock import exclusive


def test_a_killed_writer_leaves_a_leftover_that_is_swept(tmp_path: Path) -> None:
    code = textwrap.dedent(f"""
        import time
        from pathlib import Path
        from remanence.storage import create
        with create(Path({str(tmp_path)!r}) / "run", "training") as draft:
            draft.document("facts", {{}})
            print("writing", flush=True)
            time.sleep(60)
    """)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        assert atomic.sweep(tmp_path) == 0, "a living writer's work must not be swept"
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
    assert not (tmp_path / "run").exists()
    assert atomic.sweep(tmp_path) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_second_writer_is_refused_and_a_kill_frees_the_lock(tmp_path: Path) -> None:
    code = textwrap.dedent(f"""
        import time
        from pathlib import Path
        from remanence.storage.lock import exclusive
        with exclusive(Path({str(tmp_path / "lock")!r}), "taken"):
            print("held", flush=True)
            time.sleep(60)
    """)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(rm.errors.RunFolderError, match="taken"), exclusive(tmp_path / "lock", "taken"):
            pass
        holder.kill()
        holder.wait()
    for _ in range(50):  # the kernel frees the lock when the process is reaped
        try:
            with exclusive(tmp_path / "lock", "taken"):
                return
        except rm.errors.RunFolderError:
            time.sleep(0.1)
    pytest.fail("the lock outlived its holder")
