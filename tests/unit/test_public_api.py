"""The public names are a promise; this list changes only on purpose."""

import subprocess
import sys

import remanence as rm

PUBLIC = {
    "__version__",
    "Audit",
    "Bound",
    "CalibrationSettings",
    "Examples",
    "ForgetOptions",
    "ForgetResult",
    "ForgetSet",
    "InputError",
    "METHODS",
    "METRICS",
    "Measurement",
    "Mechanism",
    "Plan",
    "Recipe",
    "Recorder",
    "RemanenceError",
    "Run",
    "RunSettings",
    "SCORES",
    "Scores",
    "Status",
    "Task",
    "Trace",
    "TuneSettings",
    "UnlearnSettings",
    "audit_runs",
    "dataset_gradient_norms",
    "errors",
    "example_gradient_norms",
    "import_run",
    "keep_freed_memory",
    "load_dataset",
    "loss_barrier",
    "losses",
    "open_run",
    "purge",
    "read_forget_set",
    "theory",
    "train_run",
    "verify_evidence",
    "with_ids",
}


def test_public_names_are_frozen() -> None:
    assert set(rm.__all__) == PUBLIC


def test_every_public_name_loads_and_is_documented() -> None:
    for name in PUBLIC - {"__version__"}:
        assert getattr(rm, name).__doc__, name


def test_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(rm, "no_such_thing")


def test_import_and_help_leave_torch_alone() -> None:
    code = (
        "import sys, remanence, remanence.cli.main as m\n"
        "m.run(['--help'])\n"
        "heavy = {'torch', 'sklearn', 'matplotlib', 'scipy'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
