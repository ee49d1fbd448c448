"""Which of the XLA flags that tests wish for does this XLA know? One that it does not know ends the process.

    wished  --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false
    jaxlib 0.10 knows both; jaxlib 0.12 knows the first

A child process is asked, once in a run: what it found is in the environment that workers inherit.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

FOUND = "AUTOPART_TEST_XLA_FLAGS"
"""The environment variable that holds what was found."""


def set_xla_flags(wished: list[str], needed: str) -> None:
    """Sets XLA_FLAGS to those of `wished` that XLA knows, the caller's own, and `needed`."""
    if FOUND not in os.environ:
        given = os.environ.get("XLA_FLAGS", "")
        os.environ[FOUND] = " ".join([*known_flags(wished, given), given, needed])
    os.environ["XLA_FLAGS"] = os.environ[FOUND]


def known_flags(wished: list[str], given: str) -> list[str]:
    """Those of `wished` that XLA starts with, beside `given`. Raises `UsageError` where it starts with none of them."""
    flags = " ".join([*wished, given])
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    child = subprocess.run(
        [sys.executable, "-c", "import jax; jax.devices()"], env=environment, capture_output=True, text=True
    )
    if child.returncode == 0:
        return wished
    known = [flag for flag in wished if flag not in child.stderr]
    if known == wished:
        last = (child.stderr.strip().splitlines() or [f"exit code {child.returncode}"])[-1]
        raise pytest.UsageError(f"jax does not start with XLA_FLAGS={flags!r}: {last}")
    return known_flags(known, given)
