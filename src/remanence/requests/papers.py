"""What is sealed with a new run beside its weights: how it was asked for, its past, its evidence."""

from __future__ import annotations

import hashlib
import secrets
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from torch import nn

from remanence._version import __version__
from remanence.experiments import Duration
from remanence.experiments.unlearned import Rows
from remanence.requests.calibration import FOLDER, Calibration
from remanence.requests.evidence import FORMAT, KIND, REVEALS, versions, write_evidence
from remanence.requests.findings import findings, not_measured
from remanence.requests.ledger import bound_document, group_bound, norms_of, past, removed_norms, write_ledger
from remanence.requests.plan import Plan
from remanence.requests.remains import find_remains
from remanence.requests.request import trace_of
from remanence.requests.signing import hidden, sealed
from remanence.storage import Draft, write_trace
from remanence.tasks.poison import write_poison
from remanence.training import Poison, Run
from remanence.training.recorder import TRACE_FILES
from remanence.types import Ids, NormTrace


@dataclass(frozen=True)
class Orders:
    """How a request is to be carried out.

    Args:
        key: signs the evidence.
        oracle: retrain a model without the examples, for the audit.
        budget: steps after which to give up; the calibration's by default.
        plain_ids: write the ids into the evidence as they are.
        asked_by: who asked; goes into the evidence as it is.
        look_in: where to look for what still remembers; the folders around the run and the new one by default.
        apart: begin from a run that another request has begun from, though the two models then go separate ways.
        seed: of the unlearning.
    """

    key: Ed25519PrivateKey | None = None
    oracle: bool = False
    budget: int | None = None
    plain_ids: bool = False
    asked_by: str = ""
    look_in: tuple[Path, ...] = ()
    apart: bool = False
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Papers:
    """Everything that is sealed with a new run beside its weights."""

    run: Run
    plan: Plan
    calibration: Calibration
    orders: Orders
    budget: int
    started: datetime
    oracle: Run | None

    @property
    def ids(self) -> Ids:
        """Who leaves."""
        return self.plan.request.ids

    def write(self, draft: Draft, model: nn.Module, rows: Rows) -> list[str]:
        """Fill the draft; the names of the files."""
        done, stopped = self.plan.criterion.time(rows), max(row["step"] for row in rows)
        self._rewrite_config(draft, stopped)
        write_trace(draft, without(trace_of(self.run), self.ids))
        after = hashlib.sha256((draft.path / "weights.safetensors").read_bytes()).hexdigest()
        shutil.rmtree(draft.path / FOLDER, ignore_errors=True)  # of an attempt that was killed
        self.calibration.without(self.ids).write(draft.path / FOLDER, after)
        row = self._ledger_row(done, stopped, after)
        trace = trace_of(self.run)
        norms = removed_norms(self.run, trace, self.ids)
        files = [*TRACE_FILES, *write_ledger(draft, [*past(self.run), row], norms, trace.steps)]
        document = self._document(draft, model, files, row, done, stopped)
        return [*files, *write_evidence(draft.path, sealed(document, self.orders.key))]

    def _rewrite_config(self, draft: Draft, stopped: int) -> None:
        """The steps that were taken, and nothing of the noise that removed examples carried."""
        config = tomllib.loads((draft.path / "config.toml").read_text())
        config["unlearning"] |= {"steps": stopped, "budget": self.budget}
        poison = self.run.poison
        if poison is not None:
            stays = ~np.isin(poison.ids, self.ids)
            kept = Poison(poison.ids[stays], poison.noise[torch.from_numpy(stays)], poison.variance)
            config["poison"] = kept.ids.tolist()
            write_poison(draft, kept)
        draft.config(config)

    def _ledger_row(self, done: Duration, stopped: int, after: str) -> dict[str, Any]:
        trace = trace_of(self.run)
        own = group_bound(norms_of(trace, self.ids), trace.steps, trace.mechanism)
        return {
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "request": self.plan.request.forget_set.name,
            "size": len(self.ids),
            "ids": self.ids.tolist(),
            "salt": secrets.token_hex(16),
            "method": self.plan.method,
            "options": dict(self.plan.options),
            "seed": self.orders.seed,
            "steps": stopped,
            "reached": done.reached,
            "model_before": self.plan.model,
            "model_after": after,
            "bound": bound_document(own, "group loss of this request"),
            "cumulative": bound_document(self.plan.bound, "group loss of all that left so far"),
        }

    def _document(
        self,
        draft: Draft,
        model: nn.Module,
        files: list[str],
        row: Mapping[str, Any],
        done: Duration,
        stopped: int,
    ) -> dict[str, Any]:
        plan, settings = self.plan, self.run.settings
        names = ["config.toml", "weights.safetensors", "measurements.jsonl", *files]
        poison = ["poison.safetensors"] if self.run.poison is not None else []
        return {
            "remanence": KIND,
            "format": FORMAT,
            "version": __version__,
            "made": row["when"],
            "request": {
                "name": row["request"],
                "asked_by": self.orders.asked_by,
                "size": row["size"],
                "file_sha256": plan.request.file_sha256,
                "ids": self._told_ids(row["salt"]),
            },
            "model": {
                "data": settings.data,
                "architecture": settings.model,
                "before": {"weights": plan.model},
                "after": {"weights": row["model_after"], "files": _hashes(draft.path, [*names, *poison])},
            },
            "method": {"name": plan.method, "options": dict(plan.options), "seed": self.orders.seed},
            "plan": plan.document(ids=False),
            "actual": {
                "reached": done.reached,
                "steps": done.value,
                "stopped_at": stopped,
                "budget": self.budget,
                "inside_interval": bool(plan.forecast.low <= done.value <= plan.forecast.high)
                and done.reached,
                "seconds": (datetime.now(UTC) - self.started).total_seconds(),
            },
            "audit": findings(self.run, plan, model, self.oracle),
            "not_measured": not_measured(self.run, plan, self.oracle),
            "bounds": [row["bound"], row["cumulative"]],
            "ledger": [_told(each) for each in [*past(self.run), row]],
            "remains": self._remains(draft.path),
            "erased": [],
            "supersedes": None,
            "reveals": REVEALS,
            "versions": versions(),
        }

    def _told_ids(self, salt: str) -> dict[str, Any]:
        ids = self.ids.tolist()
        if self.orders.plain_ids:
            return {"how": "plain", "values": ids}
        return {
            "how": "HMAC-SHA256, keyed with a salt that stays in the run's ledger",
            "values": sorted(hidden(ids, salt)),
        }

    def _remains(self, new: Path) -> list[dict[str, Any]]:
        source = self.run.folder.path
        look_in = self.orders.look_in or dict.fromkeys((source.resolve().parent, new.resolve().parent))
        models = {self.plan.model, *(each["model_before"] for each in past(self.run))}
        found = find_remains(self.run, models, self.ids, look_in, skip=new)
        return [{"path": str(each.path), "what": each.what, "purge_erases": each.ours} for each in found]


def without(trace: NormTrace, ids: Ids) -> NormTrace:
    """The trace of everybody else."""
    keep = ~np.isin(trace.ids, ids)
    columns = ("norms", "confidence", "error", "moments")
    kept = {name: values[:, keep] for name in columns if (values := getattr(trace, name)) is not None}
    return replace(trace, ids=trace.ids[keep], **kept)


def _hashes(folder: Path, names: Sequence[str]) -> dict[str, str]:
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


def _told(row: Mapping[str, Any]) -> dict[str, Any]:
    """A ledger row as an auditor may see it."""
    return {key: value for key, value in row.items() if key not in ("ids", "salt")}
