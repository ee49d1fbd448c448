"""The simulator's seconds beside the TPU compiler's, of convolutions of given images of few features.

python -m experiments.few_features            with the compiler's figures kept in `compiler.json`; writes results.json
python -m experiments.few_features compile    compiles what is not kept: pip install libtpu, ten minutes
python -m experiments.few_features worst      with the rows that are furthest off
"""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path

import jax

from autopart.costmodel.optimised_hlo import Instruction, OptimisedHlo
from experiments.against_xla.hlo import class_of
from experiments.convolution_grids import by_chip, cycles_us, run
from experiments.few_features.cases import Case, fitted, held_out

FOLDER = Path(__file__).parent

_DIMS = re.compile(r"\w+\[([\d,]*)\]")


def groups() -> dict[str, list[Case]]:
    """All programs, by what they are for."""
    return by_chip({"fitted": fitted(), "held out": held_out()})


def compiled_us(case: Case) -> float:
    """Microseconds of the compiler's cycles, but for those at the edge."""
    return cycles_us(case, at_the_edge)


def at_the_edge(case: Case, module: OptimisedHlo, ran: Instruction) -> bool:
    """True for a copy of the result, of what the gradient is computed of, or of the kernel or its gradient: here they
    are given, or left, in another layout than beside other ops."""
    if not ran.cycles or class_of(module, ran) not in ("copy", "convert"):
        return False
    found = next((text for text in _DIMS.findall(ran.type) if text), "1")
    dims, left = [int(n) for n in found.split(",")], jax.eval_shape(case.convolved, *case.program()[1][:2])
    return case.features in dims and math.prod(dims) in (left.size, case.kernel_elements)


if __name__ == "__main__":
    run(sys.argv[1:], groups(), compiled_us, FOLDER)
