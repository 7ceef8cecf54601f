"""Data sets whose examples have stable ids."""

from remanence.data.augmentation import augment
from remanence.data.digits import digits
from remanence.data.examples import Examples, Split, Target
from remanence.data.feature_table import fit_table, read_users
from remanence.data.identified_dataset import IdentifiedDataset, with_ids
from remanence.data.inspection import DatasetEntry, describe_dataset, list_datasets
from remanence.data.loading import DATASETS, SOURCES, is_table, load_dataset
from remanence.data.preprocessing import standardize
from remanence.data.public_dataset import data_folder
from remanence.data.streamed_examples import StreamedExamples
from remanence.data.table_settings import TableEncoding, TableSettings

__all__ = [
    "DATASETS",
    "SOURCES",
    "DatasetEntry",
    "Examples",
    "IdentifiedDataset",
    "Split",
    "StreamedExamples",
    "TableEncoding",
    "TableSettings",
    "Target",
    "augment",
    "data_folder",
    "describe_dataset",
    "digits",
    "fit_table",
    "is_table",
    "list_datasets",
    "load_dataset",
    "read_users",
    "standardize",
    "with_ids",
]
