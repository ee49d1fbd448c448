"""What XLA's partitioner does: `jit(identity)` between two shardings, its collectives read from the optimised HLO."""

from __future__ import annotations

import math
import re
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from experiments.redistribution.problems import Problem
from experiments.redistribution.shardy import Sequence

_KINDS = {
    "all-gather": "all_gather",
    "all-to-all": "all_to_all",
    "collective-permute": "all_permute",
    "all-reduce": "all_reduce",
    "reduce-scatter": "reduce_scatter",
}
_DEFINITION = re.compile(r"(%[\w.-]+) = (\(.*?\)|\S+) ([\w-]+)\((.*?)\)")
_SHAPE = re.compile(r"f32\[([\d,]*)\]")


def device_mesh(problem: Problem) -> Mesh:
    """The problem's mesh over the first host devices."""
    names, sizes = zip(*problem.mesh, strict=True)
    return jax.make_mesh(
        sizes,
        names,
        axis_types=(jax.sharding.AxisType.Auto,) * len(names),
        devices=jax.devices()[: math.prod(sizes)],
    )


def shardings(problem: Problem, mesh: Mesh) -> tuple[NamedSharding, NamedSharding]:
    """Source and target."""
    source, target = (
        NamedSharding(mesh, PartitionSpec(*(dim or None for dim in layout)))
        for layout in (problem.source, problem.target)
    )
    return source, target


def compiled_by_xla(problem: Problem, mesh: Mesh) -> Any:
    """The identity from source to target, compiled."""
    source, target = shardings(problem, mesh)
    identity = jax.jit(lambda x: x, in_shardings=source, out_shardings=target)
    return identity.lower(jax.ShapeDtypeStruct(problem.shape, jnp.float32)).compile()


def collectives_in(hlo: str) -> Sequence:
    """The collectives of an optimised module, with elements per device before and after."""
    definitions = _DEFINITION.findall(hlo)
    elements = {name: sum(map(_elements, _SHAPE.findall(shape))) for name, shape, _, _ in definitions}
    steps = []
    for name, _, op, operands in definitions:
        if op in _KINDS:
            before = sum(elements[operand] for operand in re.findall(r"%[\w.-]+", operands))
            steps.append((_KINDS[op], before, elements[name]))
    return Sequence(tuple(steps))


def _elements(dims: str) -> int:
    return math.prod(int(n) for n in dims.split(",")) if dims else 1
