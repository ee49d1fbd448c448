"""What holds for a plain jax function holds for the kernel whose twin it is: its factors, from arguments to results.

    softmax(q k^T) v      tile q on b, propagate:   k, v and o tiled on b, nothing is moved              b: tile
                          tile q on s               o tiled on s; of a causal mask each device takes     s: tile without
                                                    its own rows, which a kernel of a slice does not        a mask
                          tile k on t               a maximum and a sum between devices, half-way        whole

The twin is partitioned as any program: one dim of one operand is tiled, and that is propagated. It is a factor of the
kernel if every device then computes the twin of its slices: the module that the twin becomes on a device is compared,
op by op, with the twin traced for arrays of those shapes. Parts may be reduced at the very end. jax must be able to
trace the kernel for the slices, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from types import MappingProxyType

import jax

from autopart.api.kernels.same_outputs import outputs_of
from autopart.base.errors import PartitionError
from autopart.core.importer.host_calls import Kernels, lowered
from autopart.core.importer.replay import read_module
from autopart.core.kernel_calls.kernel_body import Flat
from autopart.core.kernel_calls.sharding_rule import NONE, Factor, Factors
from autopart.core.layout import axes_by_dim, pending_axes
from autopart.core.mesh import Mesh
from autopart.core.op import ANY
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Work, work
from autopart.core.program import Program
from autopart.core.table.actions import Propagate, Tile
from autopart.core.table.partitioning import Partitioning
from autopart.spmd.device_local import DeviceLocal, lower
from autopart.spmd.emission.export import export

Avals = Sequence[jax.ShapeDtypeStruct]

_AXIS = "slices"


def twin_work(twin: Flat, avals: Avals, kernels: Kernels = MappingProxyType({})) -> Work | None:
    """The work of a twin, in which these kernels may be; None where that of one of its ops is not known."""
    program = _program(twin, avals, kernels)
    matrix = vector = 0.0
    for op, runs in enumerate(program.scope_trips[program.op_scope].tolist()):
        found = work(traits_of(program.spec(op)), program.spec(op))
        if found is None:
            return None
        matrix, vector = matrix + runs * found.matrix_flop, vector + runs * found.vector_flop
    return Work(matrix, vector)


def twin_factors(twin: Flat, kernel: Flat, avals: Avals) -> tuple[Factors, str]:
    """(the factors of a kernel, why other dims of its operands are whole)."""
    return _Twin(twin, kernel, tuple(avals)).factors()


class _Twin:
    def __init__(self, twin: Flat, kernel: Flat, avals: tuple[jax.ShapeDtypeStruct, ...]):
        self._twin, self._kernel, self._avals = twin, kernel, avals
        self._program = _program(twin, avals)
        self._results = [self._program.type_of(v).shape for v in self._program.outputs]

    def factors(self) -> tuple[Factors, str]:
        """See `twin_factors`."""
        operands = [[NONE] * len(a.shape) for a in self._avals]
        results = [[NONE] * len(shape) for shape in self._results]
        sliced, whole = list[Factor](), list[str]()
        for number, aval in enumerate(self._avals):
            for dim, size in enumerate(aval.shape):
                if size < 2 or operands[number][dim] != NONE:
                    continue
                name = f"f{len(sliced)}"
                found = self._factor(number, dim, name)
                if isinstance(found, str):
                    whole.append(f"dim {dim} of operand {number}: {found}")
                    continue
                factor, of_operands, of_results = found
                sliced.append(factor)
                for names, dims in ((operands, of_operands), (results, of_results)):
                    for k, d in enumerate(dims):
                        if d is not None:
                            names[k][d] = name
        sides = [tuple(map(tuple, side)) for side in (operands, results)]
        return Factors(sides[0], sides[1], tuple(sliced)), "; ".join(whole)

    def _factor(self, number: int, dim: int, name: str) -> tuple[Factor, list[int | None], list[int | None]] | str:
        """The factor that begins with a tile of one dim of one operand; or why there is none."""
        least = next(p for p in range(2, self._avals[number].shape[dim] + 1) if self._avals[number].shape[dim] % p == 0)
        local = self._tiled(number, dim, least)
        if isinstance(local, str):
            return local
        operands = [
            _dim(int(local.settled[v]), len(a.shape)) for v, a in zip(local.program.arguments, self._avals, strict=True)
        ]
        outputs = [int(local.native[v]) for v in self._program.outputs]
        results = [_dim(layout, len(shape)) for layout, shape in zip(outputs, self._results, strict=True)]
        codes = {code for layout in outputs for _, code in pending_axes(layout, 1)}
        codes |= {ANY for d, o in zip(results, outputs, strict=True) if d is None and not pending_axes(o, 1)}
        if len(codes) > 1 or (codes == {ANY} and set(results) == {None}):
            return "a result is no tile and no part of a reduction"
        why = self._unlike(local, operands, least)
        if why:
            return why
        pairs = [*zip(self._avals, operands, strict=True), *zip(self._program_results(), results, strict=True)]
        most = math.gcd(*(a.shape[d] for a, d in pairs if d is not None))
        for ways in _divisors(most, least):
            local = self._tiled(number, dim, ways)
            if ways == least or (not isinstance(local, str) and not self._unlike(local, operands, ways)):
                return Factor(name, ways, next(iter(codes), None)), operands, results
        return "it has no slices"

    def _program_results(self) -> list[jax.ShapeDtypeStruct]:
        return [jax.ShapeDtypeStruct(shape, "float32") for shape in self._results]

    def _tiled(self, number: int, dim: int, ways: int) -> DeviceLocal | str:
        """The twin on a device where one dim is tiled so many ways; or why it cannot be."""
        partitioning = Partitioning(self._program, Mesh({_AXIS: ways}))
        try:
            partitioning.apply(Tile(self._program.arguments[number], dim, _AXIS))
            partitioning.apply(Propagate(_AXIS))
        except PartitionError as error:
            return error.why or error.what
        return lower(partitioning)

    def _unlike(self, local: DeviceLocal, operands: list[int | None], ways: int) -> str:
        """Why what a device computes is not the twin of its slices, or the kernel cannot be traced for them."""
        slices = [_slice(a, d, ways) for a, d in zip(self._avals, operands, strict=True)]
        try:
            made = jax.eval_shape(self._kernel, *slices)
            there = lower(Partitioning(_program(self._twin, slices), local.mesh))
        except Exception as error:
            return f"it cannot be traced for slices: {str(error).partition(chr(10))[0][:120]}"
        if outputs_of(export(local)) != outputs_of(export(there)):
            return f"of {ways} slices, each computes otherwise than its twin: by place, or with others"
        sizes = [tuple(there.program.type_of(v).shape) for v in there.program.outputs]
        return "" if [tuple(m.shape) for m in made] == sizes else "of slices it leaves other shapes than its twin"


def _program(function: Flat, avals: Avals, kernels: Kernels = MappingProxyType({})) -> Program:
    """A function as a program, op by op as jax writes it for TPUs: grouped products are one op there."""
    found, bodies = lowered(jax.jit(function, keep_unused=True).trace(*avals), "tpu", kernels)
    return read_module(found.compiler_ir("stablehlo"), bodies=bodies, keep_unused=True)


def _dim(layout: int, rank: int) -> int | None:
    """The dim that a layout on one axis tiles."""
    return next((d for d, axes in enumerate(axes_by_dim(layout, 1, rank)) if axes), None)


def _slice(aval: jax.ShapeDtypeStruct, dim: int | None, ways: int) -> jax.ShapeDtypeStruct:
    shape = tuple(size // ways if d == dim else size for d, size in enumerate(aval.shape))
    return jax.ShapeDtypeStruct(shape, aval.dtype)


def _divisors(most: int, multiple_of: int) -> Iterator[int]:
    """Divisors of a number that are multiples of another, from the largest down."""
    return (ways for ways in range(most, 1, -1) if most % ways == 0 and ways % multiple_of == 0)
