"""All names of jax's private modules that autopart uses: no other file imports `jax._src` or `jaxlib`.

What stands here may move or go with a new jax. `tests/test_jax_internals.py` then says by name what is gone, and this
is the one file to mend. Options of XLA are in `xla_options.py`.
"""

# pyright: reportPrivateImportUsage=false, reportPrivateUsage=false
from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Generator
from typing import Any

from jax._src import pjit, tree_util
from jax._src.api_util import InternalFloatingPointError
from jax._src.array import ArrayImpl
from jax._src.callback import io_callback_p, pure_callback_p
from jax._src.core import trace_state_clean
from jax._src.debugging import debug_callback_p, debug_print_p
from jax._src.distributed import global_state
from jax._src.effects import ordered_effects
from jax._src.interpreters import pxla
from jax._src.lax.control_flow.loops import _scan_impl, scan_p
from jax._src.lib import _jax
from jax._src.mesh import get_concrete_mesh, thread_resources
from jax._src.source_info_util import user_frames
from jaxlib.mlir.dialects import sdy

__all__ = [
    "ArrayImpl",
    "InternalFloatingPointError",
    "cudnn_assumed",
    "debug_callback_p",
    "debug_print_p",
    "get_concrete_mesh",
    "global_state",
    "io_callback_p",
    "jaxlib_jax",
    "ordered_effects",
    "pjit",
    "pure_callback_p",
    "pxla",
    "scan_impl",
    "scan_p",
    "sdy",
    "thread_resources",
    "trace_state_clean",
    "tree_util",
    "user_frames",
]

_CUDNN = 91000
"""The version of cuDNN that a program is traced for where none is."""


_is_cudnn_assumed = contextvars.ContextVar("cudnn_assumed", default=False)


@contextlib.contextmanager
def cudnn_assumed() -> Generator[None]:
    """jax traces cuDNN's attention, in this thread, as if cuDNN were here: it asks for its version alone."""
    _ask_context()
    before = _is_cudnn_assumed.set(True)
    try:
        yield
    finally:
        _is_cudnn_assumed.reset(before)


@functools.cache
def _ask_context() -> None:
    """What jax asks looks whether cuDNN is assumed; for good, since other threads may trace meanwhile."""
    from jax._src.cudnn import fused_attention_stablehlo as attention  # few programs need it

    asked = attention.check_cudnn_version
    attention.check_cudnn_version = lambda: _CUDNN if _is_cudnn_assumed.get() else asked()


scan_impl: Any = _scan_impl
"""What a scan computes: of its operands and parameters."""

jaxlib_jax: Any = _jax
"""jaxlib's extension module."""
