"""What stands on the call of a kernel: its name, how it may be sliced, its flop, and why it is not sliced further.

mhlo.backend_config = {index = 0, name = "flash", rule = "b h s d, ...", matrix_flop = 540016640, vector_flop = 1048576,
                       whole = "grid dim 2 (2 steps): the body asks which step it is",
                       products = "512x128:268435456 128x512:268435456"}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autopart.core.op import OpSpec

KERNEL = "autopart_kernel"
"""Target of the call that stands for a kernel."""

CONFIG = "mhlo.backend_config"

FIELDS = frozenset({"index", "name", "rule", "matrix_flop", "vector_flop", "whole", "products"})


def config_of(spec: OpSpec) -> Mapping[str, Any] | None:
    """What stands on a call; None for other ops."""
    is_kernel = spec.kind == "custom_call" and spec.attributes.get("call_target_name") == KERNEL
    config = spec.attributes.get(CONFIG) if is_kernel else None
    return config if isinstance(config, Mapping) and config.keys() >= FIELDS else None


def filled(spec: OpSpec, tile: tuple[int, int, int]) -> float:
    """How many times as long a kernel's products take as their flop say on a matrix unit with tiles (m, n, k): those of
    128 columns twice as long on one with 256."""
    config = config_of(spec)
    parts = [part.split(":") for part in config["products"].split()] if config else []
    products = [(*map(int, sides.split("x")), float(flop)) for sides, flop in parts]
    taken = sum(-(-n // tile[1]) * tile[1] / n * (-(-k // tile[2]) * tile[2] / k) * flop for n, k, flop in products)
    return taken / (sum(flop for _, _, flop in products) or 1.0) or 1.0
