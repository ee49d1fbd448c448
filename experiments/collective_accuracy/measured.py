"""The measured rows, in seconds and in this project's words, and which of them a fit may see."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

DATA = Path(__file__).parent / "data"

KINDS = {
    "all-gather": "all_gather",
    "reduce-scatter": "reduce_scatter",
    "all-reduce": "all_reduce",
    "all-to-all": "all_to_all",
    "collective-permute": "all_permute",
}

SMALL_BYTES = 65536
"""Below it the table is dominated by noise (a first call of 1 KB takes 5 times the second): kept apart."""

UNSEEN_GROUPS = (16, 36)
"""Group sizes of the 72-device domain that no fit sees at all."""


@dataclass(frozen=True)
class Collectives:
    """Measured runs of one collective: group size, bytes as the formulas count them (S or m), seconds."""

    group: np.ndarray
    whole_bytes: np.ndarray
    seconds: np.ndarray

    def where(self, rows: np.ndarray) -> Collectives:
        return Collectives(self.group[rows], self.whole_bytes[rows], self.seconds[rows])

    @property
    def seen(self) -> np.ndarray:
        """Rows a fit uses: from `SMALL_BYTES` on, even powers of two, no unseen group size."""
        even = np.round(np.log2(self.whole_bytes)).astype(int) % 2 == 0
        return even & (self.whole_bytes >= SMALL_BYTES) & ~np.isin(self.group, UNSEEN_GROUPS)


def collectives(xla_device: str, kind: str) -> Collectives:
    """All rows of `kind` on a device."""
    with gzip.open(DATA / "xla_collective_times.json.gz") as file:
        rows = [r for r in json.load(file) if r[0] == xla_device and KINDS[r[1]] == kind]
    group = np.array([r[4] or r[5] for r in rows], float)
    size = np.array([r[2] for r in rows], float)
    whole = size * group if kind == "reduce_scatter" else size
    return Collectives(group, whole, whole / np.array([r[6] for r in rows], float))


@dataclass(frozen=True)
class Matmuls:
    """Measured matmuls of one element type: flop, bytes moved once, seconds."""

    flop: np.ndarray
    bytes: np.ndarray
    seconds: np.ndarray

    def where(self, rows: np.ndarray) -> Matmuls:
        return Matmuls(self.flop[rows], self.bytes[rows], self.seconds[rows])

    @property
    def seen(self) -> np.ndarray:
        """Every other row; the table is sorted by shape."""
        return np.arange(len(self.flop)) % 2 == 0


def matmuls(xla_device: str, dtypes: str) -> Matmuls:
    """All rows of one pair of element types, such as "bf16xbf16->bf16"."""
    with gzip.open(DATA / "xla_matmul_rates.json.gz") as file:
        rows = [r for r in json.load(file) if r[0] == xla_device and r[5] == dtypes]
    b, m, n, k, rate = np.array([(*r[1:5], r[6]) for r in rows], float).T
    width = {"bf": 2, "f3": 4, "f8": 1}
    operand_bytes, result_bytes = width[dtypes[:2]], width[dtypes.split("->")[1][:2]]
    flop = 2 * b * m * n * k
    return Matmuls(flop, b * ((m * k + k * n) * operand_bytes + m * n * result_bytes), flop / rate)
