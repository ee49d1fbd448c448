"""Dims that an axis does not divide, made longer inside the program: see `padded_dims.py` and `padding.py`."""

from autopart.core.passes.padding.padded_dims import PaddedDims
from autopart.core.passes.padding.padding import Padding, written_longer

__all__ = ["PaddedDims", "Padding", "written_longer"]
