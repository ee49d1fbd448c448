"""The simulator's seconds beside the TPU compiler's, of convolutions of given images of few features.

python -m experiments.few_features            with the compiler's figures kept in `compiler.json`; writes results.json
python -m experiments.few_features compile    compiles what is not kept: pip install libtpu, ten minutes
python -m experiments.few_features worst      with the rows that are furthest off
"""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path

import jax

from autopart.costmodel.optimised_hlo import Instruction, OptimisedHlo
from autopart.costmodel.xla_compile import CLOCK_HZ, topology_devices
from experiments.against_xla.hlo import class_of
from experiments.few_features.cases import Case, fitted, held_out
from experiments.few_images.__main__ import NEAR, estimated_us, summed_up
from experiments.kept import write

COMPILER = Path(__file__).with_name("compiler.json")
RESULTS = Path(__file__).with_name("results.json")

_DIMS = re.compile(r"\w+\[([\d,]*)\]")


def groups() -> dict[str, list[Case]]:
    """All programs, by what they are for."""
    by_chip: dict[str, list[Case]] = {}
    for name, cases in (("fitted", fitted()), ("held out", held_out())):
        for case in cases:
            by_chip.setdefault(f"{name}, {case.topology.split(':')[0]}", []).append(case)
    return {name: by_chip[name] for name in sorted(by_chip)}


def main(words: list[str]) -> None:
    """See the module."""
    if set(words) - {"compile", "worst"}:
        raise SystemExit(f"no part is called {sorted(set(words) - {'compile', 'worst'})}; known: compile, worst")
    kept = json.loads(COMPILER.read_text()) if COMPILER.exists() else {}
    for case in (case for group in groups().values() for case in group if "compile" in words):
        if case.name not in kept:
            kept[case.name] = compiled_us(case)
            print(f"{case.name}: {kept[case.name]:.1f} us", flush=True)
            COMPILER.write_text(json.dumps(kept, indent=0) + "\n")
    summary = {}
    for name, cases in groups().items():
        ratios = {case.name: estimated_us(case) / kept[case.name] for case in cases if case.name in kept}
        summary[name] = summed_up(list(ratios.values()))
        print(f"{name}: {summary[name]}")
        if "worst" in words:
            for ratio, case in sorted((r, n) for n, r in ratios.items()):
                if not NEAR[0] <= ratio <= NEAR[1]:
                    print(f"  {ratio:.2f}  {case}")
    write(RESULTS, {"summary": summary})


def compiled_us(case: Case) -> float:
    """Microseconds of the compiler's cycles, without those of copies that only a program's edge asks for."""
    device = topology_devices(case.topology)[0]
    placed = jax.sharding.SingleDeviceSharding(device)
    function, arguments = case.program()
    compiled = jax.jit(function, in_shardings=placed, out_shardings=placed).lower(*arguments).compile()
    module = OptimisedHlo(compiled.as_text() or "")
    cycles = sum(times * ran.cycles for ran, times in module.ran() if not at_the_edge(case, module, ran))
    return round(1e6 * cycles / CLOCK_HZ[device.device_kind.lower()], 1)


def at_the_edge(case: Case, module: OptimisedHlo, ran: Instruction) -> bool:
    """True for a copy of the result, of what the gradient is computed of, or of the kernel or its gradient: here they
    are given, or left, in another layout than beside other ops."""
    if not ran.cycles or class_of(module, ran) not in ("copy", "convert"):
        return False
    found = next((text for text in _DIMS.findall(ran.type) if text), "1")
    dims, left = [int(n) for n in found.split(",")], jax.eval_shape(case.convolved, *case.program()[1][:2])
    return case.features in dims and math.prod(dims) in (left.size, case.kernel_elements)


if __name__ == "__main__":
    main(sys.argv[1:])
