"""A deletion request from arrival to evidence."""

from remanence.requests.calibration import Calibration, CalibrationSettings, calibrate, read_calibration
from remanence.requests.carry_out import Outcome, forget
from remanence.requests.evidence import Check, read_evidence, verify_evidence
from remanence.requests.page import write_plan_page
from remanence.requests.papers import Orders
from remanence.requests.plan import Plan, make_plan
from remanence.requests.purging import Purged, purge, survey
from remanence.requests.remains import Remain, remains_of
from remanence.requests.request import Request, read_request
from remanence.requests.signing import read_private_key, read_public_key

__all__ = [
    "Calibration",
    "CalibrationSettings",
    "Check",
    "Orders",
    "Outcome",
    "Plan",
    "Purged",
    "Remain",
    "Request",
    "calibrate",
    "forget",
    "make_plan",
    "purge",
    "read_calibration",
    "read_evidence",
    "read_private_key",
    "read_public_key",
    "read_request",
    "remains_of",
    "survey",
    "verify_evidence",
    "write_plan_page",
]
