"""Eight simulated devices on the CPU, set before jax starts, and little time spent on compiling tiny programs.

XLA's older emitters take half as long for that as its newer ones, by which `experiments.reliability` runs its thousands
of programs.
"""

import os

import pytest

from tests.xla_flags import set_xla_flags

os.environ["JAX_PLATFORMS"] = "cpu"
set_xla_flags(
    ["--xla_backend_optimization_level=0", "--xla_cpu_use_fusion_emitters=false"],
    needed="--xla_force_host_platform_device_count=8",
)

pytest.register_assert_rewrite("tests.golden.check")


collect_ignore_glob = ["property/steps_*.py", "whole_models/blocks/*", "data/*"]
"""Steps are registered when they are imported, which doctests would do once more under another name; data need packages
that tests do without."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """--property-cases=5000 runs thousands of random programs instead of a hundred."""
    parser.addoption("--property-cases", type=int, default=100, help="random programs to partition (default 100)")
    parser.addoption("--whole-models", type=int, default=20, help="models to draw and partition (default 20)")
