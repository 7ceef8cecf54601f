"""Small networks for experiments, and `build_model`, which also builds your own."""

from remanence.models.building import MODELS, build_model, import_object, is_import_path, parse_options
from remanence.models.resnet import resnet18
from remanence.models.simple import logistic, mlp, small_conv
from remanence.models.vit import vit_small

__all__ = [
    "MODELS",
    "build_model",
    "import_object",
    "is_import_path",
    "logistic",
    "mlp",
    "parse_options",
    "resnet18",
    "small_conv",
    "vit_small",
]
