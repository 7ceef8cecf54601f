"""SIGKILL one training run at twenty random moments, resuming each time; is it still the run nobody disturbed?

    python benchmarks/kills.py --work DIR [--kills 20] [--epochs 3]

Moments are drawn so that every kill meets a living, unfinished run: anywhere from the start of the process to
the end of its second epoch, but never past the beginning of the run's last one. Exit code 0 only if all of
them did and `remanence diff` says bit-identical.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STEPS_PER_EPOCH = 21
"""Of digits in batches of 64."""
REMANENCE = [sys.executable, "-m", "remanence"]


def task(out: Path, epochs: int) -> list[str]:
    what = f"train --data digits --model resnet18 --width 8 --epochs {epochs} --seed 5 --record 12 --json"
    return [*REMANENCE, *what.split(), "--out", str(out)]


def undisturbed(out: Path, epochs: int) -> tuple[float, float]:
    """Run it through; seconds until the first checkpoint, and in all."""
    started = time.monotonic()
    first = 0.0
    with subprocess.Popen(task(out, epochs), stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            if not first and any((out / "checkpoints").glob("step-*")):
                first = time.monotonic() - started
            time.sleep(0.02)
        if process.returncode:
            sys.exit(f"the undisturbed run failed with exit code {process.returncode}")
    return first, time.monotonic() - started


def killed(out: Path, epochs: int, moment: float) -> bool:
    """Start or resume the run and kill it after so many seconds; whether it was alive and unfinished.

    When it comes to its last epoch before that, it is killed there: it must not finish yet.
    """
    command = [*task(out, epochs), "--resume"]
    begun_last = epochs_left(out, epochs) == 1
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + moment
        while time.monotonic() < deadline and (begun_last or epochs_left(out, epochs) > 1):
            time.sleep(0.002)
        alive = process.poll() is None
        process.kill()
    return alive and not (out / "remanence.json").exists()


def epochs_left(out: Path, epochs: int) -> int:
    steps = [int(path.name.removeprefix("step-")) for path in (out / "checkpoints").glob("step-*")]
    return epochs - max(steps, default=0) // STEPS_PER_EPOCH


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    work = Path(
        tempfile.mkdtemp(prefix="kills-", dir=options.work)
    )  # what an earlier run left is not in the way
    quiet = work / "B"
    first, whole = undisturbed(quiet, options.epochs)
    epoch = (whole - first) / max(1, options.epochs - 1)
    print(
        f"undisturbed: {whole:.1f} s, first checkpoint after {first:.1f} s, an epoch {epoch:.1f} s",
        flush=True,
    )
    draw, met, attempts, differing, ended = random.Random(options.seed), 0, 0, 0, [work / "A1"]
    while met < options.kills and attempts < 3 * options.kills:
        attempts += 1
        noisy = ended[-1]
        latest = 0.6 * first if epochs_left(noisy, options.epochs) == 1 else first + epoch
        moment = draw.uniform(0.0, latest)
        hit = killed(noisy, options.epochs, moment)
        met += hit
        left = epochs_left(noisy, options.epochs)
        found = "an unfinished run" if hit else "NO unfinished run"
        print(f"kill {attempts:2d} after {moment:5.2f} s met {found}; {left} epochs left", flush=True)
        if not hit:  # the machine has become faster: it finished; the next one is killed
            differing += differs(noisy, quiet, options.epochs)
            ended.append(work / f"A{len(ended) + 1}")
    differing += differs(ended[-1], quiet, options.epochs)
    print(
        f"{met} of {attempts} kills met an unfinished run; {differing} of {len(ended)} runs differ",
        flush=True,
    )
    sys.exit(0 if not differing and met == options.kills else 1)


def differs(noisy: Path, quiet: Path, epochs: int) -> bool:
    """Finish a run that was killed, and compare it with the undisturbed one."""
    if not (noisy / "remanence.json").exists():
        subprocess.run([*task(noisy, epochs), "--resume"], check=True, stdout=subprocess.DEVNULL)
    return bool(subprocess.run([*REMANENCE, "diff", str(noisy), str(quiet)], check=False).returncode)


if __name__ == "__main__":
    main()
