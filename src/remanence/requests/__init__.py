"""Deletion requests: calibrate, plan, forget, verify the evidence, purge."""

from remanence.requests.calibrating import calibrate
from remanence.requests.calibration import Calibration, CalibrationSettings, read_calibration
from remanence.requests.evidence import Check, read_evidence, verify_evidence
from remanence.requests.forget_request import forget
from remanence.requests.forget_result import ForgetResult
from remanence.requests.outcome import Outcome
from remanence.requests.plan import Plan, make_plan
from remanence.requests.plan_page import write_plan_page
from remanence.requests.purging import Purged, list_remaining_artifacts, purge
from remanence.requests.remaining_artifacts import RemainingArtifact
from remanence.requests.request import ForgetOptions, Request, find_request, make_request, read_request
from remanence.requests.signing import read_private_key, read_public_key

__all__ = [
    "Calibration",
    "CalibrationSettings",
    "Check",
    "ForgetOptions",
    "ForgetResult",
    "Outcome",
    "Plan",
    "Purged",
    "RemainingArtifact",
    "Request",
    "calibrate",
    "find_request",
    "forget",
    "list_remaining_artifacts",
    "make_plan",
    "make_request",
    "purge",
    "read_calibration",
    "read_evidence",
    "read_private_key",
    "read_public_key",
    "read_request",
    "verify_evidence",
    "write_plan_page",
]
