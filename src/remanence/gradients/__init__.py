"""Per-example gradient norms of any `nn.Module`."""

from remanence.gradients.fallbacks import FallbackWarning
from remanence.gradients.flight import norms_in_flight
from remanence.gradients.flight_norms import FlightNorms
from remanence.gradients.gram import example_gradients_gram
from remanence.gradients.norms import example_gradient_norms
from remanence.gradients.stream import dataset_gradient_norms

__all__ = [
    "FallbackWarning",
    "FlightNorms",
    "dataset_gradient_norms",
    "example_gradient_norms",
    "example_gradients_gram",
    "norms_in_flight",
]
