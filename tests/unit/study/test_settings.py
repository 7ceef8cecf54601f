"""Study files: presets, overrides, and what is refused."""

from pathlib import Path

import pytest

from remanence.errors import DataError, InputError, UnknownNameError
from remanence.stages import in_order
from remanence.study.barrier_stage import BarrierStage
from remanence.study.catalog import CATALOG, find_study, load_study, merged, presets_of, shipped
from remanence.study.checking import check
from remanence.study.figures import FIGURES
from remanence.study.graph import ForgetChoice, Graph
from remanence.study.running import plan
from remanence.study.settings import Study
from remanence.study.train_stages import BaseModel, Oracle, Train
from remanence.study.unlearn_stages import Measure, Tune, Unlearn

NAMES = [path.stem for path in shipped()]


@pytest.mark.parametrize("preset", ["smoke", "cpu", "resnet", "paper"])
@pytest.mark.parametrize("name", NAMES)
def test_every_shipped_study_has_every_preset(name: str, preset: str) -> None:
    study = load_study(name, preset)
    assert study.figure in FIGURES
    assert study.title
    assert study.claim
    if preset == "paper":
        assert (study.train.recipe.epochs, study.train.record, study.seeds) == (150, 35, 10)
        assert study.unlearn.first_every == study.gate.attack == 0
    if preset == "cpu":
        assert study.seeds >= 3
    if preset in ("cpu", "resnet") and "digits" not in study.data.source:
        assert study.seeds >= (8 if preset == "cpu" else 6)
        assert study.first_seed >= study.explored >= max(study.tuning_seeds) > 0
        assert study.forget.per_seed
        assert study.audit.stay == 1, "the time that decides is the first entry"
        assert study.gate.train_accuracy >= 0.97
        assert study.gate.attack > 0.5
        assert study.criterion


@pytest.mark.parametrize("name", NAMES)
def test_every_shipped_study_can_be_planned(name: str) -> None:
    planned = plan(load_study(name, "smoke"))
    assert len(in_order([planned.goal])) > 2


def test_the_repository_shows_the_shipped_studies() -> None:
    root = Path(__file__).parents[3]
    assert sorted(path.stem for path in (root / "studies").glob("*.toml")) == sorted([*NAMES, "base"])


def test_later_layers_win() -> None:
    study = load_study("svhn", "smoke", ["train.lr=0.5", "seeds=1", 'audit.metrics=["ua"]', "model.width=2"])
    assert study.data.source == "digits", "the preset wins over the file"
    assert study.train.recipe.learning_rate == 0.5
    assert study.seeds == 1
    assert study.audit.metrics == ("ua",)
    assert study.model.options == {"width": 2, "norm": "group"}
    assert load_study("svhn", "cpu").data.source == "svhn_12k.npz"


def test_a_short_name_wins_where_its_place_lets_it(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text((CATALOG / "base.toml").read_text())
    mine = tmp_path / "mine.toml"
    top = 'extends = "base"\ntitle = "x"\nfigure = "proxies"\nclaim = "y"\n[train]\nlr = 0.2\n'
    mine.write_text(top)

    def rate(preset: str, *changes: str) -> float:
        return load_study(str(mine), preset, changes).train.recipe.learning_rate

    assert rate("cpu") == 0.2, "the file wins over the one that it extends"
    assert rate("smoke") == 0.05, "the preset wins over the file"
    assert rate("smoke", "train.lr=0.7") == rate("smoke", "train.learning_rate=0.7") == 0.7
    mine.write_text(f"{top}[presets.smoke.train]\nlr = 0.3\n")
    assert rate("smoke") == 0.3


@pytest.mark.parametrize("presets", ["3", "{ smoke = 3 }"])
def test_presets_are_tables(presets: str, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(f'title = "x"\nfigure = "proxies"\nclaim = "y"\npresets = {presets}\n')
    with pytest.raises(InputError, match="must be a table of tables"):
        load_study(str(mine), "smoke")


def test_another_model_brings_its_own_options() -> None:
    base = {"model": {"name": "resnet18", "norm": "batch"}}
    assert merged(base, {"model": {"name": "mlp"}}) == {"model": {"name": "mlp"}}
    assert merged(base, {"model": {"width": 2}}) == {
        "model": {"name": "resnet18", "norm": "batch", "width": 2}
    }


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("train.leraning_rate=1", r"Did you mean 'train\.learning_rate'"),
        ("tune.epoch=1", r"Did you mean 'tune\.epochs'"),
        ("sed=3", "Did you mean 'seeds'"),
        ("train.epochs=x", r"`train\.recipe\.epochs` must be a whole number; got 'x'"),
        ("train.epochs=-1", "`epochs` must be a finite number above 0"),
        ("seeds=0", "`seeds` must be at least 1"),
        ("seeds=true", "`seeds` must be a whole number; got True"),
        ("data=3", "`data` must be a table"),
        ("train.placement=random", r"no choice for `train\.placement` named 'random'"),
        ("nothing", "must read table.key=value"),
        ("train.record=0", r"`record` must be at least 1; got 0.*in \[train\]"),
        ("score.alpha=-1", "`alpha` must be a finite number above 1"),
        ("score.sigma=nan", "`sigma` must be a finite number above 0"),
        ("score.sigmas=[0.1, 0]", "`sigmas` must be a finite number above 0"),
        ("forget.sizes=[]", "`sizes` must name at least one"),
        ("forget.sizes=[0.1, 0.1]", "`sizes` must name each once"),
        ("unlearn.methods=[]", "`methods` must name at least one"),
        ("unlearn.sample=-1", "`sample` must be at least 0"),
        ("unlearn.options.l1_sparse=3", r"`options\.l1_sparse` must be a table; got 3"),
        ("audit.metrics=[]", "`metrics` must name at least one"),
        ('audit.metrics=["ua", "ua"]', "`metrics` must name each once"),
        ('audit.subsets=["tset"]', "Did you mean 'test'"),
        ("audit.points=2", "`points` must be at least 3"),
        ("audit.poison_variance=0", "`poison_variance` must be a finite number above 0"),
        ("tune.oracles=0", "`oracles` must be a finite number above 0"),
        ("tune.seeds=0", "`seeds` must be a finite number above 0"),
        ("tune.epochs=0", "`epochs` must be a finite number above 0"),
        ("tune.learning_rates=[0]", "`learning_rates` must be a finite number above 0"),
        ("group.batches=1", "`batches` must be at least 2"),
        ("group.draws=0", "`draws` must be a finite number above 0"),
        ("group.sigmas=[]", "`sigmas` must name at least one"),
        ('unlearn.references=["finetune"]', r"`references` must be some of `methods` \(finetune\), not all"),
    ],
)
def test_a_wrong_setting_is_named_with_the_nearest(override: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        load_study("time-to-unlearn", "smoke", [override])


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ('audit.metrics=["mai"]', "no metric named 'mai'"),
        ('unlearn.methods=["finetun"]', "Did you mean 'finetune'"),
        ("model.name=resnet81", "Did you mean 'resnet18'"),
        ("figure=time", "Did you mean 'times'"),
        ("data.source=digit", "Did you mean 'digits'"),
        ('score.proxies=["confidense"]', "Did you mean 'confidence'"),
        ("data.source=nowhere.npz", "it is in neither"),
        ("data.train=100000", "must be between 1 and the 1297"),
        ("forget.seed=7", "`forget.seed` must be one of the training runs"),
        ("model.depth=3", "cannot be built"),
        ("model.width=3", "cannot be built with width=3"),
        ("model.in_channels=3", "must fit the data"),
        (
            'audit.metrics=["ua", "klom"]',
            r"`audit\.metrics` must be among ua, ra, test, mia_confidence, mia_auc, gus",
        ),
        ("unlearn.options.finetune.nosuch=1", "no option of finetune named 'nosuch'"),
        ("unlearn.options.finetune.batch_size=8", "no option of finetune named 'batch_size'"),
        ('unlearn.methods=["noisy_finetune"]', "needs `noise` above 0"),
        ("train.record=5000", r"`train\.record` must be at most the 246 steps"),
        ("figure=hardest", r"hardest needs at least 1 different `score\.proxies`"),
        ("forget.bands=[]", r"times needs at least 2 different `forget\.bands`; got 0"),
        ("figure=sizes", r"sizes needs at least 2 different `forget\.sizes`"),
        ("figure=rankings", r"rankings needs at least 2 different `score\.sigmas`"),
        ('score.proxies=["privacy_loss"]', "must be other scores than privacy_loss"),
        (
            "figure=curves",
            "`audit.metrics` must be among ua, ra, test, mia_confidence, mia_auc, which the figure curves",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_computed(override: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        check(load_study("time-to-unlearn", "smoke", [override]))


@pytest.mark.parametrize("coefficient", ["-1", '"much"'])
def test_a_value_that_a_method_refuses_is_refused_at_once(coefficient: str) -> None:
    with pytest.raises(InputError, match=r"coefficient|l1_sparse"):
        check(load_study("l1-sparse", "smoke", [f"unlearn.options.l1_sparse.coefficient={coefficient}"]))


def test_the_hardest_are_unlearned_by_one_method() -> None:
    with pytest.raises(InputError, match="hardest is of one method"):
        check(load_study("hardest", "smoke", ['unlearn.methods=["finetune", "l1_sparse"]']))


def test_more_moments_of_group_losses_than_steps_are_refused() -> None:
    with pytest.raises(InputError, match=r"`group\.moments` must be at most"):
        check(load_study("group-loss", "smoke", ["group.moments=5000"]))


def test_a_forget_set_larger_than_the_data_is_refused() -> None:
    with pytest.raises(InputError, match="between 1 and 1296"):
        plan(load_study("time-to-unlearn", "smoke", ["forget.sizes=[5000]"]))
    with pytest.raises(InputError, match="take at most 259"):
        plan(load_study("time-to-unlearn", "smoke", ["forget.sizes=[300]"]))


def test_missing_data_name_the_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REMANENCE_DATA", str(tmp_path))
    with pytest.raises(DataError, match=str(tmp_path)):
        plan(load_study("time-to-unlearn", "cpu"))


def test_studies_are_found_by_name_and_by_path(tmp_path: Path) -> None:
    assert find_study("proxies").name == find_study("studies/proxies.toml").name == "proxies.toml"
    with pytest.raises(UnknownNameError, match="Did you mean 'proxies'"):
        find_study("proxis")
    mine = tmp_path / "mine.toml"
    with pytest.raises(InputError, match="does not exist"):
        find_study(str(mine))
    mine.write_text("title = ")
    with pytest.raises(InputError, match="is not valid TOML"):
        load_study(str(mine))
    mine.write_text('title = "x"\nfigure = "times"\nclaim = "y"\n[presets.a]\n')
    assert presets_of(mine) == ["a"]
    with pytest.raises(InputError, match="incomplete"):
        load_study(str(mine), "a")
    mine.write_text('extends = "mine"\n')
    with pytest.raises(InputError, match="extends itself"):
        load_study(str(mine), "a")


def test_a_folder_of_the_same_name_does_not_hide_a_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`remanence demo` writes a folder `demo`, beside which the study `demo` must still be found."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").mkdir()
    assert find_study("demo") == CATALOG / "demo.toml"


def test_figures_share_their_stages() -> None:
    def keys(name: str, kind: str) -> set[str]:
        goal = plan(load_study(name, "smoke")).goal
        return {stage.key for stage in in_order([goal]) if stage.kind == kind}

    times = keys("time-to-unlearn", "train"), keys("time-to-unlearn", "oracle")
    assert keys("curves", "oracle") == times[1]
    assert keys("curves", "unlearn") < keys("time-to-unlearn", "unlearn"), "which has the poisoned ones too"
    assert keys("proxies", "train") < times[0]
    assert keys("hardest", "oracle") & times[1], "the highest band is the hardest so many"
    assert keys("forget-set-sizes", "oracle") > times[1]
    assert keys("loss-barriers", "oracle") <= times[1]


def test_the_outer_bands_are_the_easiest_and_the_hardest() -> None:
    graph = Graph(load_study("time-to-unlearn", "smoke"))
    bands = graph.bands(0.1)
    assert graph.forget(bands[-1], 0).key == graph.forget(ForgetChoice("hardest", 130), 0).key
    assert [choice.way for choice in bands][1:4] == ["lower quartile", "median", "upper quartile"]


PER_SEED = ["forget.per_seed=true", "seeds=3", "tune.seeds=2", "tune.learning_rates=[0.1, 0.2]"]


def per_seed(*changes: str) -> Study:
    return load_study("time-to-unlearn", "smoke", [*PER_SEED, 'audit.metrics=["ua"]', *changes])


def test_every_seed_chooses_its_own_forget_sets_when_asked() -> None:
    graph, shared = Graph(per_seed()), Graph(per_seed("forget.per_seed=false", "forget.seed=1"))
    hardest = graph.bands(0.1)[-1]
    sets = [graph.forget(hardest, seed) for seed in range(3)]
    assert [choice.scores.key for choice in sets] == [graph.score(seed).key for seed in range(3)]
    assert {shared.forget(hardest, seed).key for seed in range(3)} == {shared.forget(hardest, 1).key}
    random = ForgetChoice("random", 130)
    assert [graph.forget(random, seed).seed for seed in range(3)] == [0, 1, 2]
    assert [shared.forget(random, seed).seed for seed in range(3)] == [1, 1, 1]


def test_what_is_unlearned_and_compared_belongs_to_the_same_seed() -> None:
    stages = in_order([plan(per_seed()).goal])
    unlearned = [stage for stage in stages if isinstance(stage, Unlearn) and stage.tuned is not None]
    assert {stage.seed for stage in unlearned} == {0, 1, 2}
    for stage in unlearned:
        assert isinstance(stage.start, Train)
        assert (stage.start.seed, stage.forget.scores.trained.key) == (stage.seed, stage.start.key)
    oracles = [stage for stage in stages if isinstance(stage, Oracle)]
    for stage in oracles:
        assert stage.forget.scores.trained.seed == stage.seed
    bands = [stage for stage in oracles if stage.forget.way != "random"]
    assert len(bands) == 3 * 5 * per_seed().audit.oracles
    for measured in (stage for stage in stages if isinstance(stage, Measure)):
        assert measured.oracle.forget.key == measured.forget.key


def test_a_learning_rate_is_judged_by_the_oracles_of_the_set_it_was_tried_on() -> None:
    [tune] = [stage for stage in in_order([plan(per_seed()).goal]) if isinstance(stage, Tune)]
    assert [(stage.seed, stage.learning_rate) for stage in tune.attempts] == [
        (0, 0.1),
        (0, 0.2),
        (1, 0.1),
        (1, 0.2),
    ]
    judged = {stage.forget.key for stage in tune.oracles}
    assert {stage.forget.key for stage in tune.attempts} == judged
    assert len(judged) == 2
    assert len(tune.oracles) == 2 * per_seed().tune.oracles


def test_barriers_of_a_seed_are_between_its_own_models() -> None:
    stages = in_order([plan(load_study("loss-barriers", "smoke", PER_SEED)).goal])
    barriers = [stage for stage in stages if isinstance(stage, BarrierStage)]
    assert len(barriers) == 3 * 5 * 3, "before, after and between the two oracles"
    for barrier in barriers:
        models = [barrier.first, barrier.second]
        assert {model.seed for model in models} == {barrier.forget.scores.trained.seed}
        for oracle in (model for model in models if isinstance(model, Oracle)):
            assert oracle.forget.key == barrier.forget.key
    with pytest.raises(InputError, match=r"at least 2 `audit\.oracles` per seed; got 1"):
        check(load_study("loss-barriers", "smoke", [*PER_SEED, "audit.oracles=1"]))


def test_deciding_seeds_are_not_those_that_were_explored() -> None:
    study = load_study("time-to-unlearn", "smoke", ["first_seed=40", "tune.first_seed=3", "explored=10"])
    stages = in_order([plan(study).goal])
    runs = {stage.seed for stage in stages if isinstance(stage, Train)}
    assert runs == {3, 40, 41}
    assert {stage.trained.seed for stage in stages if isinstance(stage, BaseModel)} == {40, 41}
    [tune] = [stage for stage in stages if isinstance(stage, Tune)]
    assert {attempt.seed for attempt in tune.attempts} == {3}
    assert study.scoring_seed == 40


def test_the_data_folder_is_passed_on_and_changes_no_key(tmp_path: Path) -> None:
    here, there = (load_study("proxies", "smoke", data_dir=place) for place in (None, str(tmp_path)))
    assert there.data.data_dir == str(tmp_path)
    assert plan(here).goal.key == plan(there).goal.key
    trained = next(stage for stage in in_order([plan(there).goal]) if isinstance(stage, Train))
    assert trained.task.data.data_dir == str(tmp_path)
    assert trained.task.data.digest, "tied to the data there are now"
