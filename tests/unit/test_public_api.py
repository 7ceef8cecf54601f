"""The public names are a promise; this list changes only on purpose."""

import subprocess
import sys

import remanence as rm

PUBLIC = {
    "__version__",
    "Audit",
    "Barrier",
    "Bound",
    "CalibrationSettings",
    "DataError",
    "DataWarning",
    "Duration",
    "DurationSummary",
    "Examples",
    "FallbackWarning",
    "ForgetSet",
    "InflightRecorder",
    "InputError",
    "Langevin",
    "METHODS",
    "Measurement",
    "Mechanism",
    "Method",
    "Trace",
    "NumericalError",
    "Plan",
    "Recipe",
    "Recorder",
    "RemanenceError",
    "Run",
    "RunFolderError",
    "Scores",
    "Split",
    "Status",
    "TuneSettings",
    "UnknownNameError",
    "UnlearnSettings",
    "audit_runs",
    "bands",
    "calibrate",
    "dataset_gradient_norms",
    "easiest",
    "epsilon_after",
    "example_gradient_norms",
    "example_gradients_gram",
    "forget",
    "group_loss",
    "hardest",
    "kaplan_meier",
    "load_dataset",
    "log_moment",
    "loss_barrier",
    "make_method",
    "make_plan",
    "match_permutations",
    "norms_in_flight",
    "open_run",
    "privacy_loss",
    "privacy_losses",
    "random_set",
    "read_forget_set",
    "read_request",
    "steps_to_unlearn",
    "summarize",
    "time_to_unlearn",
    "tune",
    "unlearn_run",
    "verify_evidence",
    "with_ids",
    "worst_case_loss",
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
