"""Inputs centred and scaled as the training set asks for."""

from __future__ import annotations

import torch

from remanence.data.examples import Examples
from remanence.errors import DataError


def standardize(train: Examples, *others: Examples) -> tuple[Examples, ...]:
    """The same examples with the training set's mean taken off and divided by its standard deviation.

    Images [n, channels, height, width] by channel, feature rows [n, features] by feature. What is constant
    in the training set is only centred. Ids and labels stay; the digest changes with the inputs.
    """
    if train.inputs.ndim < 2 or not train.inputs.is_floating_point():
        raise DataError(
            f"Only images and rows of features can be standardized; got {train.inputs.dtype} inputs "
            f"of shape {tuple(train.inputs.shape)}."
        )
    axes = [axis for axis in range(train.inputs.ndim) if axis != 1]
    deviation, mean = torch.std_mean(train.inputs, dim=axes, correction=0, keepdim=True)
    deviation = torch.where(deviation > 0, deviation, torch.ones_like(deviation))
    return tuple(
        Examples(each.ids, (each.inputs - mean).div_(deviation), each.labels, each.class_names)
        for each in (train, *others)
    )
