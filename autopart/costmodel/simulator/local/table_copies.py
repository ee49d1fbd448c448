"""Copies of tables of short rows: of the table for look-ups by row, and of its gradient into its order.

    f32[200000,64]     51 MB as it is stored, 102 MB in rows
                       v3 388 us either way; v5e 330 us, and 132 us where one of the two is on the chip

Found with libtpu 0.0.51 on v3 and v5e, of 16 to 96 elements in a row (`facts/row_layouts.py`).
"""

# pyright: reportArgumentType=false
# (an element of an array is a plain number in a kernel)
from __future__ import annotations

from autopart.core.kernels import kernel
from autopart.costmodel.simulator.arrays import LocalArrays, Lowered, ProgramArrays

ON_CHIP, THROUGH_HBM = 2.0, 1.6
"""How often the bytes of what is stored pass at HBM's rate where rows are on the chip; those of both where they are
not, on chips that have room for arrays."""


@kernel
def ordered_bytes(program: ProgramArrays, lowered: Lowered, held: LocalArrays, value: int) -> float:
    """Bytes that pass at HBM's rate as a gradient whose rows are padded is copied into the order of its table.

    Where it stays in rows for who reads it, that counts the padding.
    """
    plain = held.values.native_elements[value] * program.values.element_bytes[value]
    rows = held.values.native_bytes[value]
    if rows <= plain:
        return 0.0
    return _copied(plain, rows, lowered.on_chip_bytes) - (rows - plain if held.values.in_rows[value] else 0.0)


@kernel
def _copied(plain: float, rows: float, on_chip_bytes: float) -> float:
    if rows <= on_chip_bytes:
        return ON_CHIP * plain
    return (THROUGH_HBM if on_chip_bytes > 0 else 1.0) * (plain + rows)
