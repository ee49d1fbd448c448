"""Numbers of a list: geometric mean, quantiles; rounded for a results file."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def geomean(ratios: Sequence[float]) -> float:
    """The geometric mean."""
    return float(np.exp(np.mean(np.log(ratios))))


def significant(value: float, digits: int = 4) -> float:
    """`value` rounded to significant digits."""
    return 0.0 if value == 0 else round(value, digits - 1 - math.floor(math.log10(abs(value))))


def ratios(others: Sequence[float], ours: Sequence[float]) -> dict[str, float]:
    """How many times as much others need, over the problems in which both need something."""
    both = [(a, b) for a, b in zip(others, ours, strict=True) if a > 0 and b > 0]
    quotients = [a / b for a, b in both]
    return {
        "problems": len(both),
        "geomean": significant(geomean(quotients)),
        "max": significant(max(quotients)),
        "min": significant(min(quotients)),
        "ours_cheaper": sum(q > 1 for q in quotients),
        "ours_dearer": sum(q < 1 for q in quotients),
        "only_they_need_something": sum(a > 0 and b == 0 for a, b in zip(others, ours, strict=True)),
        "only_we_need_something": sum(a == 0 and b > 0 for a, b in zip(others, ours, strict=True)),
    }
