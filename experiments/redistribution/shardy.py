"""Shardy's own planner, as it ships in jaxlib: the pass `sdy-reshard-to-collectives`.

sdy.reshard  ->  sdy.all_slice, sdy.collective_permute, sdy.all_to_all, sdy.all_gather
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from jax.extend.mlir.passmanager import PassManager

from autopart.core.doors.jax_internals import ir, make_context
from experiments.redistribution.problems import Problem

_STEP = re.compile(r"= sdy\.(\w+) .*out_sharding=<@mesh, \[(.*?)\]> : ")
_DIM = re.compile(r"\{([^}]*)\}")
_AXIS = re.compile(r'"(\w+)"(?::\(\d+\)(\d+))?')


@dataclass(frozen=True)
class Sequence:
    """Collectives of a redistribution: (kind, elements per device before, after)."""

    steps: tuple[tuple[str, int, int], ...]

    @property
    def cost(self) -> int:
        """Figure 11."""
        cost = 0
        for kind, before, after in self.steps:
            if kind != "all_slice":
                cost += after if kind == "all_gather" else 2 * before if kind == "all_reduce" else before
        return cost

    @property
    def largest(self) -> int:
        """Largest local size on the way."""
        return max((max(before, after) for _, before, after in self.steps), default=0)

    @property
    def communicating(self) -> int:
        """Collectives that move data."""
        return sum(kind != "all_slice" for kind, _, _ in self.steps)


class Shardy:
    """Runs the pass; one MLIR context for many problems."""

    def __init__(self) -> None:
        self._context = make_context()
        with self._context:
            self._passes = PassManager.parse("builtin.module(func.func(sdy-reshard-to-collectives))")

    def __call__(self, problem: Problem) -> Sequence:
        """Its collectives, with the padded local sizes it would really use."""
        with self._context:
            module = ir.Module.parse(_module(problem))
            self._passes.run(module.operation)
            text = str(module)
        sizes, steps = dict(problem.mesh), []
        here = problem.types[0].local_elements
        for kind, sharding in _STEP.findall(text):
            after = 1
            for n, dim in zip(problem.shape, _DIM.findall(sharding), strict=True):
                ways = math.prod(int(size or sizes[name]) for name, size in _AXIS.findall(dim))
                after *= -(-n // ways)
            steps.append(("all_permute" if kind == "collective_permute" else kind, here, after))
            here = after
        if here != problem.types[1].local_elements:
            raise ValueError(f"Shardy's collectives were not all understood:\n{text}")
        return Sequence(tuple(steps))


def _module(problem: Problem) -> str:
    mesh = ", ".join(f'"{name}"={size}' for name, size in problem.mesh)
    tensor = f"tensor<{'x'.join(map(str, problem.shape))}xf32>"
    source, target = (_sharding(layout) for layout in (problem.source, problem.target))
    return f"""module {{
      sdy.mesh @mesh = <[{mesh}]>
      func.func public @main(%x: {tensor} {{sdy.sharding = #sdy.sharding<@mesh, {source}>}})
          -> ({tensor} {{sdy.sharding = #sdy.sharding<@mesh, {target}>}}) {{
        %y = sdy.reshard %x <@mesh, {target}> : {tensor}
        return %y : {tensor}
      }}
    }}"""


def _sharding(layout: tuple[tuple[str, ...], ...]) -> str:
    dims = ["{" + ", ".join(f'"{a}"' for a in dim) + "}" for dim in layout]
    return "[" + ", ".join(dims) + "]"
