"""The pass `split_argmax`: the position of an extreme is found by two reductions that devices can share.

    %v, %p = reduce(%x, iota) by argmax        ->      %m = reduce(%x) by maximum
                                                       %h = %x == %m                      (or %x is no number)
                                                       %p = reduce(select(%h, iota, most)) by minimum

No collective combines pairs, so a tile of the reduced dim would be gathered: the logits of a vocabulary, for each token
that is decoded. Of the two reductions each has a collective, of a number per row. On one device they read the array
twice, which beside the matmul that makes logits is nothing; dims shorter than `LEAST` stay as they are.

The numbers are the same to the bit: the first of equal extremes, the first that is no number before all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from autopart.core.jax_internals import numpy_dtype
from autopart.core.op import MAX, MIN, OpSpec, TensorType
from autopart.core.ops.rules.reduce import identity
from autopart.core.passes.groups import LEAST
from autopart.core.passes.program_pass import Pass, register_pass
from autopart.core.passes.rewritten_as import mlir_type, rewritten
from autopart.core.program import Program
from autopart.core.splats import splat_behind

_EXTREMES = {"argmax": (MAX, "maximum"), "argmin": (MIN, "minimum")}


@register_pass("split_argmax")
@dataclass(frozen=True)
class SplitArgmax(Pass):
    """Argmax and argmin along long dims become two reductions."""

    def apply(self, program: Program) -> Program:
        """See `Pass.apply`."""
        return rewritten(program, _is_split, _text, _is_plain)


def _is_split(spec: OpSpec) -> bool:
    dims = spec.attributes.get("dimensions", ())
    return (
        spec.kind == "reduce"
        and spec.region in _EXTREMES
        and len(dims) == 1
        and spec.operands[0].shape[dims[0]] >= LEAST
        and spec.operands[0].dtype != "i1"
    )


def _is_plain(program: Program, op: int) -> bool:
    """True if the reduction begins with what changes nothing, and pairs each element with its own position."""
    spec, operands = program.spec(op), program.operands_of(op).tolist()
    code, positions = _EXTREMES[spec.region][0], program.spec(int(program.value_op[operands[1]]))
    start, first = (splat_behind(program, value) for value in operands[2:])
    counts = positions.kind == "iota" and (positions.attributes["iota_dimension"],) == spec.attributes["dimensions"]
    least = identity(code, spec.operands[0].dtype)
    return counts and start is not None and bool(start == least) and first is not None and bool(first == 0)


def _text(spec: OpSpec, location: str) -> str:
    """A function of the op's operands that returns its results, each line from where the op is."""
    array, index = spec.operands[:2]
    scalars = TensorType((), array.dtype), TensorType((), index.dtype)
    types = {"A": array, "I": index, "H": TensorType(array.shape, "i1"), "a": scalars[0], "i": scalars[1]}
    types |= {"V": spec.results[0], "P": spec.results[1]}
    mlir = {name: mlir_type(type_) for name, type_ in types.items()}
    lines = "".join(f"{line} {location}\n" for line in _lines(spec, mlir))
    return (
        f"func.func @main(%x: {mlir['A']}, %i: {mlir['I']}, %start: {mlir['a']}, %zero: {mlir['i']})"
        f" -> ({mlir['V']}, {mlir['P']}) {{\n{lines}return %v, %p : {mlir['V']}, {mlir['P']}\n}}"
    )


def _lines(spec: OpSpec, mlir: dict[str, str]) -> Iterator[str]:
    a, i, h, v, p = (mlir[name] for name in "AIHVP")
    dim = spec.attributes["dimensions"][0]
    kept = ", ".join(str(d) for d in range(len(spec.operands[0].shape)) if d != dim)
    spread = f"broadcast_dimensions = array<i64{': ' if kept else ''}{kept}>"
    most = np.iinfo(numpy_dtype(spec.operands[1].dtype)).max
    yield _reduction("%v", "%x", "%start", _EXTREMES[spec.region][1], dim, (a, mlir["a"], v))
    yield f'%b = "stablehlo.broadcast_in_dim"(%v) {{{spread}}} : ({v}) -> {a}'
    yield f'%e = "stablehlo.compare"(%x, %b) {{{_comparison("EQ")}}} : ({a}, {a}) -> {h}'
    yield f'%n = "stablehlo.compare"(%x, %x) {{{_comparison("NE")}}} : ({a}, {a}) -> {h}'
    yield f'%h = "stablehlo.or"(%e, %n) : ({h}, {h}) -> {h}'
    yield f'%most = "stablehlo.constant"() {{value = dense<{most}> : {mlir["i"]}}} : () -> {mlir["i"]}'
    yield f'%f = "stablehlo.broadcast_in_dim"(%most) {{broadcast_dimensions = array<i64>}} : ({mlir["i"]}) -> {i}'
    yield f'%s = "stablehlo.select"(%h, %i, %f) : ({h}, {i}, {i}) -> {i}'
    yield _reduction("%p", "%s", "%most", "minimum", dim, (i, mlir["i"], p))


def _comparison(direction: str) -> str:
    return f"comparison_direction = #stablehlo<comparison_direction {direction}>"


def _reduction(result: str, array: str, start: str, by: str, dim: int, types: tuple[str, str, str]) -> str:
    whole, one, left = types
    body = f'^bb0(%l: {one}, %r: {one}): %c = "stablehlo.{by}"(%l, %r) : ({one}, {one}) -> {one}'
    body += f' "stablehlo.return"(%c) : ({one}) -> ()'
    attributes = f"dimensions = array<i64: {dim}>"
    return f'{result} = "stablehlo.reduce"({array}, {start}) ({{{body}}}) {{{attributes}}} : ({whole}, {one}) -> {left}'
