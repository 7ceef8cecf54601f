"""Data sets whose examples have stable ids."""

from remanence.data.augmentation import augment
from remanence.data.digits import digits
from remanence.data.examples import Examples, Split
from remanence.data.identified_dataset import IdentifiedDataset, with_ids
from remanence.data.inspection import DatasetEntry, describe_dataset, list_datasets
from remanence.data.loading import DATASETS, SOURCES, load_dataset
from remanence.data.preprocessing import standardize
from remanence.data.public_dataset import data_folder

__all__ = [
    "DATASETS",
    "SOURCES",
    "DatasetEntry",
    "Examples",
    "IdentifiedDataset",
    "Split",
    "augment",
    "data_folder",
    "describe_dataset",
    "digits",
    "list_datasets",
    "load_dataset",
    "standardize",
    "with_ids",
]
