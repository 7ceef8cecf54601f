"""What a page says about how a result was made is true."""

import json
import shlex
import tomllib
from pathlib import Path

import pytest

from remanence.report.markdown import result_page
from remanence.stages import Store, in_order
from remanence.stages.timings import Timings
from remanence.study.catalog import CATALOG, load_study, shipped
from remanence.study.provenance import Provenance, provenance_of
from remanence.study.running import Planned, plan
from remanence.study.settings import study_from


def provenance(planned: Planned, folder: Path, overrides: tuple[str, ...] = ()) -> Provenance:
    return provenance_of(planned, Store(folder), overrides)


def test_seeds_are_those_that_were_trained_with(tmp_path: Path) -> None:
    one, two = plan(load_study("group-loss", "smoke")), plan(load_study("proxies", "smoke"))
    assert (one.study.seeds, provenance(one, tmp_path).seeds) == (2, 1)
    assert provenance(two, tmp_path).seeds == 2
    document = {"verdicts": [], "tables": {}}
    assert "`smoke`, 1 seed, " in result_page(one.study, document, provenance(one, tmp_path), "x", ["a"])


def test_wall_time_is_what_the_spans_cover(tmp_path: Path) -> None:
    planned = plan(load_study("proxies", "smoke"))
    stages = in_order([planned.goal])
    spans = [(10, "12:00:10"), (10, "12:00:15"), (2, "12:01:00"), (0.5, "12:00:05")]
    with (tmp_path / "ledger.jsonl").open("w") as file:
        for stage, (seconds, at) in zip(stages, spans, strict=False):
            entry = {"key": stage.key, "kind": "x", "seconds": seconds, "machine": "m"}
            file.write(json.dumps(entry | {"finished": f"2025-01-01T{at}+00:00"}) + "\n")
    assert len(Timings(tmp_path).read()) == 4
    made = provenance(planned, tmp_path)
    assert (made.wall_seconds, made.core_seconds) == (17.0, 22.5)


def test_the_command_can_be_pasted(tmp_path: Path) -> None:
    mine = tmp_path / "my own" / "mine.toml"
    mine.parent.mkdir()
    for name in ("base", "proxies"):
        (mine.parent / f"{name}.toml").write_text((CATALOG / f"{name}.toml").read_text())
    (mine.parent / "proxies.toml").rename(mine)
    changes = ('audit.metrics=["ua", "mia_confidence"]', "seeds=1")
    command = provenance(plan(load_study(str(mine), "smoke", changes)), tmp_path, changes).command
    assert shlex.split(command)[3:] == [
        str(mine),
        "--preset",
        "smoke",
        *(part for change in changes for part in ("--set", change)),
    ]
    shipped_one = provenance(plan(load_study("proxies", "smoke")), tmp_path).command
    assert shipped_one == "remanence study run studies/proxies.toml --preset smoke"


@pytest.mark.parametrize("name", [path.stem for path in shipped()])
def test_the_settings_are_a_study_file(name: str, tmp_path: Path) -> None:
    planned = plan(load_study(name, "smoke"))
    table = tomllib.loads(provenance(planned, tmp_path).settings)
    study = planned.study
    about = {
        key: getattr(study, key)
        for key in ("title", "figure", "claim", "note", "criterion", "name", "file", "preset")
    }
    assert study_from(table | about) == study
