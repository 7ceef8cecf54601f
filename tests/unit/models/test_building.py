import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import remanence as rm
from remanence.models import MODELS, build_model, logistic, parse_options

OWN = """
from torch import nn

def net(num_classes, in_features=4, *, width=3, **rest):
    return nn.Sequential(nn.Flatten(), nn.Linear(in_features, width), nn.Linear(width, num_classes))

def strict(depth):
    return nn.Identity()

def text():
    return "no model"

number = 3
"""


def examples(n_classes: int, *shape: int) -> rm.Examples:
    names = tuple(map(str, range(n_classes)))
    return rm.Examples(np.arange(n_classes), torch.zeros(n_classes, *shape), torch.arange(n_classes), names)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = "my_models_" + tmp_path.name.replace("-", "_")
    (tmp_path / f"{name}.py").write_text(OWN)
    (tmp_path / f"{name}_broken.py").write_text("import no_such_package\n")
    monkeypatch.chdir(tmp_path)
    return name


@pytest.mark.parametrize("name", MODELS)
def test_every_model_fits_the_data_it_is_made_for(name: str) -> None:
    options = {"width": 8} if name == "resnet18" else {"dim": 24, "depth": 1} if name == "vit_small" else {}
    model = build_model(name, examples(7, 1, 8, 8), **options)
    assert model(torch.rand(2, 1, 8, 8)).shape == (2, 7)


@pytest.mark.parametrize("norm", ["group", "batch"])
@pytest.mark.parametrize("side", [1, 5, 8, 9, 28, 32, 33])
def test_the_small_network_takes_pictures_of_any_size(side: int, norm: str) -> None:
    model = build_model("small_conv", examples(7, 3, side, side), width=4, norm=norm)
    assert model.eval()(torch.rand(2, 3, side, side)).shape == (2, 7)
    convolutions = sum(isinstance(layer, torch.nn.Conv2d) for layer in model.modules())
    assert convolutions == (3 if side <= 8 else 4)


@pytest.mark.parametrize(
    ("shape", "options", "words"),
    [
        ((3, 8, 9), {}, r"'small_conv' must be given square images; got 8 × 9 pixels"),
        ((3, 8, 8), {"norm": "layer"}, "`norm` must be group or batch; got 'layer'"),
        ((3, 8, 8), {"image": 0}, "`image` must be at least 1 pixel; got 0"),
    ],
)
def test_pictures_that_do_not_fit_are_refused_early(
    shape: tuple[int, ...], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(rm.InputError, match=words):
        build_model("small_conv", examples(7, *shape), **options)


def test_ones_own_model_from_the_current_folder(own: str) -> None:
    path = list(sys.path)
    model = build_model(f"{own}:net", examples(5, 1, 2, 3), width=9)
    assert model(torch.rand(4, 1, 2, 3)).shape == (4, 5)
    assert model[1].out_features == 9  # type: ignore[index]
    assert sys.path == path


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("resnet81", "Did you mean 'resnet18'"),
        ("{own}:nothing", "it has no 'nothing'"),
        ("{own}:number", "must name a function; it names a int"),
        ("{own}:strict", "missing a required argument: 'depth'; it takes depth"),
        ("{own}:text", "got a str"),
        ("{own}_broken:net", "No module named 'no_such_package'"),
        ("no_such_module:net", "No module named 'no_such_module'"),
        (":net", "can be imported"),
        ("logistic", "unexpected keyword argument 'widht'"),
    ],
)
def test_what_is_no_model(own: str, spec: str, words: str) -> None:
    options = {"widht": 3} if spec == "logistic" else {}
    with pytest.raises(rm.InputError, match=words):
        build_model(spec.format(own=own), examples(5, 4), **options)


def test_options_as_people_type_them() -> None:
    assert parse_options(["width=8", "norm=group", "hidden=(64, 32)", "rate=1e-3", "flag=True"]) == {
        "width": 8,
        "norm": "group",
        "hidden": (64, 32),
        "rate": 1e-3,
        "flag": True,
    }
    for bad in ("width", "=3", "a b=1"):
        with pytest.raises(rm.InputError, match="name=value"):
            parse_options([bad])


def test_logistic_starts_at_zero() -> None:
    model = logistic(in_features=6, num_classes=3)
    assert sum(parameter.numel() for parameter in model.parameters()) == 21
    assert torch.equal(model(torch.rand(2, 6)), torch.zeros(2, 3))
    with pytest.raises(rm.InputError, match="at least 1"):
        logistic(in_features=0)
