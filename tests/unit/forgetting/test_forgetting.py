import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import remanence as rm
from remanence.cli.main import run
from remanence.forgetting import (
    SELECTION_RULES,
    alike,
    choose,
    easiest,
    hardest,
    ids_from_file,
    of_class,
    of_user,
    write_forget_sets,
)
from remanence.storage import create, write_trace
from remanence.types import Ids

IDS = np.arange(100, 130)
SCORES = rm.Scores("privacy_loss", IDS, np.random.default_rng(0).permutation(30).astype(float))


def examples(shift: float = 0.0) -> rm.Examples:
    return rm.Examples(IDS, torch.arange(30.0)[:, None] + shift, torch.arange(30) % 3, ("ant", "bee", "cat"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    norms = np.tile(SCORES.values + 1, (2, 1))
    mechanism = rm.Mechanism(sigma=0.1, sampling_rate=0.1, steps=10, batch_size=3)
    found = rm.Trace(IDS, np.array([0, 10]), norms, mechanism, provenance={"data": examples().digest()})
    with create(tmp_path / "run", "training") as draft:
        write_trace(draft, found)
    return tmp_path / "run"


def test_hardest_and_easiest() -> None:
    rising = IDS[np.argsort(SCORES.values)].tolist()
    assert hardest(SCORES, 4).ids.tolist() == rising[:-5:-1]
    assert easiest(SCORES, 4).ids.tolist() == rising[:4]
    assert len(hardest(SCORES, 30).ids) == 30
    for wrong in (0, 31):
        with pytest.raises(rm.InputError, match="between 1 and the 30 examples"):
            hardest(SCORES, wrong)


def test_ties_do_not_depend_on_the_order_of_rows() -> None:
    turned = rm.Scores("s", IDS[::-1], np.zeros(30))
    assert hardest(turned, 5).ids.tolist() == hardest(rm.Scores("s", IDS, np.zeros(30)), 5).ids.tolist()


def test_by_class() -> None:
    assert of_class(examples(), "bee").ids.tolist() == list(range(101, 130, 3))
    some = of_class(examples(), "bee", 4, seed=1)
    assert len(some.ids) == 4
    assert set(some.ids.tolist()) <= set(range(101, 130, 3))
    with pytest.raises(rm.errors.UnknownNameError, match="Did you mean 'bee'"):
        of_class(examples(), "bees")
    with pytest.raises(rm.InputError, match="between 1 and the 10"):
        of_class(examples(), "bee", 11)


def test_by_person() -> None:
    users = ["ann" if i % 4 == 0 else "bob" for i in range(30)]
    assert of_user(IDS, users, "ann").ids.tolist() == list(range(100, 130, 4))
    with pytest.raises(rm.InputError, match="No example belongs to the user 'anna'") as caught:
        of_user(IDS, users, "anna")
    assert "'ann'" not in str(caught.value), "other persons are not named"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "# those who asked\n103\n\n 101 \n"),
        ("a.csv", "when,id\nMay,103\nJune,101\n"),
        ("a.json", "[103, 101]"),
        ("b.json", '{"ids": ["103", "101"]}'),
    ],
)
def test_ids_from_a_file(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    assert ids_from_file(tmp_path / name, IDS).ids.tolist() == [103, 101]
    assert ids_from_file(tmp_path / name, IDS.astype(str)).ids.tolist() == ["103", "101"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.txt", "101\n\nbob\n", r"line 3: no example has the id 'bob'"),
        ("a.txt", "101\n102\n101\n", r"line 3: ids must be unique; '101' was already in .*line 1"),
        ("a.txt", "# nobody\n", "at least one id"),
        ("a.csv", "id\n101\n99\n", r"line 3: no example has the id '99'"),
        ("a.csv", "id,x\n101\n", r"line 2: must have 2 fields"),
        ("a.csv", "name\n101\n", r"no column 'id'"),
        ("a.json", "[101,\n 102,,]", r"line 2: not JSON"),
        ("a.json", "[101, 1.5]", r"item 1: an id must be"),
        ("a.json", '{"id": 3}', r"must be a list of ids"),
        ("a.json", "[" * 100_000, r"nested too deeply|not JSON"),
    ],
)
def test_malformed_files_name_the_line(tmp_path: Path, name: str, content: str, words: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(rm.errors.DataError, match=words):
        ids_from_file(tmp_path / name, IDS)


@pytest.mark.parametrize("ids", [np.array([5, 3]), np.array(["train/ä.png", "b"])])
def test_a_forget_set_comes_back_as_it_went(tmp_path: Path, ids: Ids) -> None:
    [file] = write_forget_sets(tmp_path / "f.json", [rm.ForgetSet("those", ids, "they asked")])
    again = rm.read_forget_set(file)
    assert again.ids.tolist() == ids.tolist()
    assert again.ids.dtype.kind == ids.dtype.kind
    assert (again.name, again.provenance) == ("those", "they asked")


def test_a_forget_set_of_other_data_is_refused(tmp_path: Path) -> None:
    chosen = hardest(SCORES, 3)
    [file] = write_forget_sets(tmp_path / "f.json", [chosen], data=examples().digest())
    assert rm.read_forget_set(file, examples()).ids.tolist() == chosen.ids.tolist()
    with pytest.raises(rm.errors.DataError, match="chosen from other data"):
        rm.read_forget_set(file, examples(shift=1))
    [loose] = write_forget_sets(tmp_path / "g.json", [rm.ForgetSet("x", np.array([7]))])
    with pytest.raises(rm.errors.DataError, match="the first is 7"):
        rm.read_forget_set(loose, examples())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"remanence": "study"}, "is not a forget set"),
        ({"format": 2}, "reads format 1"),
        ({"ids": []}, "must list ids"),
        ({"ids": [1, "a"]}, "all whole numbers or all text"),
        ({"ids": [True]}, "all whole numbers or all text"),
        ({"ids": [1, 1]}, "unique"),
        ({"ids": [2**70]}, "64 bits"),
        ({"ids": "abc"}, "must list ids"),
    ],
)
def test_bad_forget_sets(tmp_path: Path, change: dict[str, object], words: str) -> None:
    [file] = write_forget_sets(tmp_path / "f.json", [hardest(SCORES, 3)])
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(rm.errors.DataError, match=words):
        rm.read_forget_set(file)


def test_files_that_are_no_forget_set(tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text('{"remanence": ')
    with pytest.raises(rm.errors.DataError, match="line 1: not JSON"):
        rm.read_forget_set(tmp_path / "f.json")
    with pytest.raises(rm.errors.DataError, match="is not a file"):
        rm.read_forget_set(tmp_path)


def test_every_way_says_what_it_needs() -> None:
    for how in SELECTION_RULES:
        with pytest.raises(rm.InputError, match=f"Selecting by {how!r} needs `"):
            choose(how, SCORES)
    with pytest.raises(rm.errors.UnknownNameError, match="Did you mean 'hardest'"):
        choose("harder", SCORES)


def test_data_that_the_run_was_not_trained_on() -> None:
    found = choose("class", SCORES, examples=examples(), class_name="ant", digest=examples().digest())
    assert len(found[0].ids) == 10
    with pytest.raises(rm.errors.DataError, match="digest is another"):
        choose("class", SCORES, examples=examples(1), class_name="ant", digest=examples().digest())


def test_the_command_makes_five_bands(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["select", str(folder), "--how", "bands", "--size", "5", "--out", str(tmp_path / "band.json")]
    (tmp_path / "band-highest.json").write_text("mine")
    assert run(arguments) == 2
    assert "band-highest.json exists" in capsys.readouterr().err
    assert sorted(file.name for file in tmp_path.glob("*.json")) == ["band-highest.json"]
    assert run([*arguments, "--force", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["forget_sets"]
    assert [row["size"] for row in found] == [5] * 5
    highest = rm.read_forget_set(found[-1]["file"], examples())
    assert set(highest.ids.tolist()) == set(hardest(SCORES, 5).ids.tolist())


def test_the_command_chooses_from_a_table_too(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, out = tmp_path / "scores.csv", tmp_path / "hard.json"
    assert run(["score", str(folder), "--out", str(table)]) == 0
    assert run(["select", str(table), "--how", "hardest", "--size", "7", "--out", str(out)]) == 0
    assert rm.read_forget_set(out).ids.tolist() == hardest(SCORES, 7).ids.tolist()
    capsys.readouterr()
    wrong = ["select", str(table), "--how", "hardest", "--size", "7", "--score", "no", "--out", "x.json"]
    assert run(wrong) == 2
    assert "no score named 'no'" in capsys.readouterr().err
    assert run(["select", "nowhere.csv", "--how", "hardest", "--size", "7", "--out", "x.json"]) == 2
    assert "nowhere.csv is not a file" in capsys.readouterr().err


def test_the_command_by_person_list_class_and_chance(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text(
        "example,person\n" + "".join(f"{i},{'ann' if i % 4 == 0 else 'bob'}\n" for i in range(90, 130))
    )
    (tmp_path / "list.txt").write_text("101\n103\n")
    pack = {"x_train": examples().inputs.numpy(), "y_train": examples().labels.numpy(), "idx_train": IDS}
    test = {
        "x_test": pack["x_train"][:2],
        "y_test": pack["y_train"][:2],
        "class_names": ["ant", "bee", "cat"],
    }
    np.savez(tmp_path / "data.npz", **pack, **test)  # type: ignore[arg-type]
    for how, more, expected in (
        (
            "user",
            ["--users", "people.csv", "--user", "ann", "--id-column", "example", "--user-column", "person"],
            8,
        ),
        ("ids", ["--ids", "list.txt"], 2),
        ("class", ["--data", "data.npz", "--class", "bee"], 10),
        ("random", ["--size", "11", "--seed", "3"], 11),
    ):
        paths = [str(tmp_path / word) if (tmp_path / word).is_file() else word for word in more]
        out = tmp_path / f"{how}.json"
        assert run(["select", str(folder), "--how", how, *paths, "--out", str(out)]) == 0
        assert len(rm.read_forget_set(out).ids) == expected


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--how", "hardest", "--out", "x.json"], r"needs \W*size"),
        (["--how", "hardest", "--size", "31", "--out", "x.json"], "between 1 and the 30"),
        (["--how", "hardest", "--size", "3", "--out", "x.csv"], "must end in \\.json"),
        (["--how", "class", "--class", "cat", "--out", "x.json"], "needs --data"),
        (["--how", "ids", "--ids", "nowhere.txt", "--out", "x.json"], "is not a file"),
    ],
)
def test_what_the_command_refuses(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    more: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["select", str(folder), *more]) == 2
    err = capsys.readouterr().err
    assert re.search(words, err)
    assert err.count("\n") == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]


def test_other_examples_as_difficult_as_a_set() -> None:
    scores = rm.Scores("privacy_loss", np.arange(20) + 100, np.arange(20.0))
    middle = alike(scores, rm.ForgetSet("f", np.array([110, 105])))
    assert sorted(middle.ids.tolist()) in ([104, 109], [106, 111], [104, 111], [106, 109])
    hard = alike(scores, rm.ForgetSet("hard", np.array([119, 118, 117])))
    assert hard.ids.tolist() == [116, 115, 114]
    assert hard.name == "like hard"
    with pytest.raises(rm.InputError, match="at most half of the 20 examples"):
        alike(scores, rm.ForgetSet("most", scores.ids[:11]))
    with pytest.raises(rm.errors.DataError):
        alike(scores, rm.ForgetSet("other", np.array([7])))


def test_tuning_on_one_set_and_on_others_like_it_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = ["--forget", "a.json", "--like", "a.json"]
    assert run(["tune", str(folder), "--method", "finetune", *both, "--out", str(tmp_path / "t")]) == 2
    assert "Expected one of --forget and --like; got both." in capsys.readouterr().err
