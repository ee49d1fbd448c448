"""The simulator's seconds beside the TPU compiler's, of convolutions of few images.

python -m experiments.few_images               with the compiler's figures kept in `compiler.json`; writes results.json
python -m experiments.few_images compile       compiles what is not kept: pip install libtpu, half an hour
python -m experiments.few_images worst         with the rows that are furthest off
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from autopart.costmodel.optimised_hlo import estimated_cycles
from autopart.costmodel.xla_compile import CLOCK_HZ
from experiments.convolution_grids import Program, compiled, run
from experiments.few_images.cases import fitted, held_out
from experiments.few_images.nets import FORWARD, NETS

FOLDER = Path(__file__).parent

FEW = 8
"""Of so many images and more none is cut."""


def groups() -> dict[str, Sequence[Program]]:
    """All programs, by what they are for."""
    fit, held = list(fitted()), list(held_out())
    return {
        "fitted": [case for case in fit if case.batch < FEW],
        "as many as are not cut": [case for case in fit if case.batch >= FEW],
        "held out": held,
        "nets": NETS,
        "nets, forward": FORWARD,
    }


def compiled_us(program: Program) -> float:
    """Microseconds of the compiler's cycles."""
    text, device = compiled(program)
    return round(1e6 * estimated_cycles(text) / CLOCK_HZ[device.device_kind.lower()], 1)


if __name__ == "__main__":
    run(sys.argv[1:], groups(), compiled_us, FOLDER)
