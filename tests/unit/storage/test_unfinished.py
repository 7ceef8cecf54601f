"""A folder that is reserved for another request says so without saying whose."""

from pathlib import Path

import pytest

from remanence.errors import InputError
from remanence.storage.unfinished import UNFINISHED, claim


def _settings(list_name: str, ids: list[str], steps: int = 5) -> dict[str, object]:
    return {"seed": 0, "unlearning": {"forget": list_name, "forgotten": ids, "steps": steps}}


def test_another_request_is_refused_without_its_ids_or_its_list(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert claim(_settings("complaint-of-ann", ["row-17"]), out, resume=False)
    assert oct((out / UNFINISHED).stat().st_mode)[-3:] == "600"
    for name, ids in (("complaint-of-bob", ["row-17"]), ("complaint-of-ann", ["row-18"])):
        with pytest.raises(InputError, match="begun with other examples") as refusal:
            claim(_settings(name, ids), out, resume=True)
        assert "complaint" not in str(refusal.value)
        assert "row-" not in str(refusal.value)
    with pytest.raises(InputError, match=r"steps = 5; now it is 6"):
        claim(_settings("complaint-of-ann", ["row-17"], steps=6), out, resume=True)
    assert not claim(_settings("complaint-of-ann", ["row-17"]), out, resume=True)
