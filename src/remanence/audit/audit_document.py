"""Audits as JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from remanence.audit.auditing import Audit, Finding


def audit_document(audits: Sequence[Audit]) -> dict[str, Any]:
    """Audits of one forget set against the same oracles, as JSON values."""
    first = audits[0]
    return {
        "forget": first.forget_set.name,
        "forget_size": len(first.forget_set.ids),
        "oracles": first.oracles,
        "audits": [_audit(audit) for audit in audits],
    }


def _audit(audit: Audit) -> dict[str, Any]:
    variances = ("as_the_network_sees_it", "on_standardized_inputs")
    return {
        "run": str(audit.run.folder.path),
        "unlearning": audit.run.unlearning.get("method"),
        "noise_variance": None if audit.noise is None else dict(zip(variances, audit.noise, strict=True)),
        "findings": [_finding(finding) for finding in audit.findings],
        "not_measured": list(audit.not_measured),
        "one_run": None if audit.one_run is None else asdict(audit.one_run),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    metric = finding.metric
    return {
        "metric": metric.name,
        "meaning": metric.meaning,
        "at_oracle": metric.at_oracle,
        "better": metric.better,
        "value": finding.value,
        "value_sd": finding.value_sd,
        "oracle_mean": finding.oracle_mean,
        "oracle_sd": finding.oracle_sd,
        "distance": finding.distance,
        "tolerance": finding.tolerance,
        "conclusive": finding.conclusive,
        "verdict": finding.verdict,
    }
