"""Seconds of one kernel by its work and bytes: a roofline.

compute = longer of matrix flop / matrix rate and vector flop / vector rate + unhidden share x shorter,
          or their sum where the units work in turn
memory  = bytes / HBM rate; without matrix work at least the bytes of the largest array / rate of one stream
seconds = launch + max(compute, memory) + unhidden share x min(compute, memory)
"""

from __future__ import annotations

import numpy as np

from autopart.base.jit.kernels import kernel
from autopart.costmodel.hardware.devices import (
    CONV_SHARE,
    HBM,
    IN_TURN,
    LAUNCH,
    MATMUL_LAUNCH,
    STREAM,
    UNHIDDEN,
    VECTOR,
)


@kernel
def roofline_s(
    matrix_work: float,
    dtype: int,
    is_conv: bool,
    vector_flop: float,
    hbm_bytes: float,
    largest_bytes: float,
    row: np.ndarray,
) -> float:
    """Seconds of one kernel on the device of `row` (`device_row`); `largest_bytes` of its bytes are one array's."""
    matrix_s = matrix_work / (row[dtype] * (row[CONV_SHARE] if is_conv else 1.0))
    vector_s = vector_flop / row[VECTOR]
    compute_s = max(matrix_s, vector_s) + (1.0 if row[IN_TURN] else row[UNHIDDEN]) * min(matrix_s, vector_s)
    memory_s = hbm_bytes / row[HBM]
    if matrix_work == 0:
        memory_s = max(memory_s, largest_bytes / row[STREAM])
    launch_s = row[MATMUL_LAUNCH] if matrix_work > 0 else row[LAUNCH]
    return launch_s + max(compute_s, memory_s) + row[UNHIDDEN] * min(compute_s, memory_s)
