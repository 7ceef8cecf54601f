"""Per-example gradient norms of any `nn.Module`."""

from remanence.gradients.dataset_norms import dataset_gradient_norms
from remanence.gradients.example_gram import example_gradients_gram
from remanence.gradients.example_norms import example_gradient_norms
from remanence.gradients.in_flight import FlightNorms, norms_in_flight
from remanence.gradients.tracker import FallbackWarning

__all__ = [
    "FallbackWarning",
    "FlightNorms",
    "dataset_gradient_norms",
    "example_gradient_norms",
    "example_gradients_gram",
    "norms_in_flight",
]
