"""Dims that an axis does not divide, made longer inside the program: see `padded_dims.py` and `padding.py`."""

from autopart.core.passes.padding.padding import Padding

__all__ = ["Padding"]
