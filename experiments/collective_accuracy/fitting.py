"""Fits of a collective's curve and of the matmul roofline, by the terms the cost model has and no other."""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy.optimize import nnls

from autopart.costmodel.compiled.links.collective_seconds import curve_s
from autopart.costmodel.hardware.fabric import COLLECTIVE_KINDS, CollectiveCurve
from experiments.collective_accuracy.measured import Collectives, Matmuls

NOISE = 0.02
"""Relative residuals below this weigh alike; the table repeats to about that."""


def fit_curve(kind: str, rows: Collectives) -> CollectiveCurve:
    """The curve with the least relative error on `rows` (iterated non-negative least squares, near the median)."""
    if kind == "all_permute":
        return _fit_permute(rows)
    wire = rows.whole_bytes * (rows.group - 1) / rows.group * (2 if kind == "all_reduce" else 1)
    steps = (rows.group - 1) * (2 if kind == "all_reduce" else 1)
    terms = np.stack([np.ones_like(wire), steps, wire, rows.whole_bytes / rows.group, np.sqrt(wire)], 1)
    launch_s, step_s, wire_s, local_s, root = _robust(terms, rows.seconds)
    infinite = float("inf")
    return CollectiveCurve(
        launch_s, step_s, 1 / wire_s, 1 / local_s if local_s > 1e-14 else infinite, ramp_s2_per_byte=root**2
    )


def _robust(terms: np.ndarray, seconds: np.ndarray, rounds: int = 30) -> np.ndarray:
    scale, weight = np.abs(terms / seconds[:, None]).mean(0), 1 / seconds
    for _ in range(rounds):
        found, _ = nnls(terms * weight[:, None] / scale, seconds * weight)
        residual = np.abs(terms / scale @ found - seconds) / seconds
        weight = 1 / seconds / np.sqrt(np.maximum(residual, NOISE))
    return found / scale


def _fit_permute(rows: Collectives) -> CollectiveCurve:
    """Launch, full rate, and the slow start: a grid over its rate and length, the rest by least squares."""
    candidates = []
    for slow_rate, below in product(np.geomspace(15e9, 300e9, 25), 2.0 ** np.arange(18, 28)):
        launch_s, rate = np.median(rows.seconds[np.argsort(rows.whole_bytes)[:4]]), None
        large = rows.whole_bytes >= 2.0**28
        rate = np.median(rows.whole_bytes[large] / rows.seconds[large])
        curve = CollectiveCurve(launch_s, 0.0, rate, slow_bytes_per_s=slow_rate, slow_below_bytes=below)
        candidates.append((np.abs(predict("all_permute", curve, rows) / rows.seconds - 1).mean(), curve))
    return min(candidates, key=lambda pair: pair[0])[1]


def predict(kind: str, curve: CollectiveCurve, rows: Collectives) -> np.ndarray:
    """Seconds by the cost model's own kernel."""
    row, code = np.array(curve.row()), COLLECTIVE_KINDS.index(kind)
    return np.array([curve_s(code, n, 1.0, b, row) for n, b in zip(rows.group, rows.whole_bytes, strict=True)])


def fit_matmul(rows: Matmuls, peak_flop_per_s: float, hbm_bytes_per_s: float) -> tuple[float, float, float]:
    """(launch seconds, share of peak, share of HBM) with the least median and 90th percentile error."""
    best = (np.inf, 0.0, 0.0, 0.0)
    for launch_s, e, h in product(np.arange(1, 12) * 1e-6, np.arange(0.40, 1.0, 0.02), np.arange(0.3, 1.01, 0.1)):
        error = np.abs(predict_matmul(rows, launch_s, e * peak_flop_per_s, h * hbm_bytes_per_s) / rows.seconds - 1)
        best = min(best, (np.median(error) + 0.3 * np.percentile(error, 90), launch_s, e, h))
    return best[1:]


def predict_matmul(rows: Matmuls, launch_s: float, flop_per_s: float, bytes_per_s: float) -> np.ndarray:
    """The roofline."""
    return launch_s + np.maximum(rows.flop / flop_per_s, rows.bytes / bytes_per_s)
