"""Eight simulated devices on the CPU, set before jax starts."""

import os

import pytest

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8".strip()


def pytest_addoption(parser: pytest.Parser) -> None:
    """--property-cases=5000 runs thousands of random programs instead of hundreds."""
    parser.addoption("--property-cases", type=int, default=200, help="random programs to partition (default 200)")
