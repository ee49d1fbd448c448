"""The simulator's seconds beside the TPU compiler's, of gradients of the inputs of convolutions with strides.

python -m experiments.strided_gradients            with the compiler's figures kept in `compiler.json`
python -m experiments.strided_gradients compile    compiles what is not kept: pip install libtpu, five minutes
python -m experiments.strided_gradients worst      names the programs that are further off
"""

from __future__ import annotations

import sys
from pathlib import Path

from autopart.costmodel.xla.optimised_hlo import Instruction, OptimisedHlo, arrays_in
from experiments.against_xla.hlo import class_of
from experiments.convolution_grids import by_chip, cycles_us, run
from experiments.strided_gradients.cases import Case, fitted, held_out

FEW = 8
"""Fewer images may be cut."""


def groups() -> dict[str, list[Case]]:
    """All programs, by what they are for."""
    return by_chip({"fitted": fitted(), "held out": held_out()})


def compiled_us(case: Case) -> float:
    """Microseconds of the compiler's cycles, but for those at the edge."""
    return cycles_us(case, at_the_edge)


def at_the_edge(case: Case, module: OptimisedHlo, ran: Instruction) -> bool:
    """True for a copy of the result, but where images are cut: their parts are put together by it."""
    left = (case.images, *case.space, case.features)
    is_left = [array.shape for array in arrays_in(ran.type)][:1] == [left]
    return case.images >= FEW and is_left and class_of(module, ran) == "copy"


if __name__ == "__main__":
    run(sys.argv[1:], groups(), compiled_us, Path(__file__).parent)
