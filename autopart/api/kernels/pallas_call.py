"""Pallas calls, by their grid and block specs.

    grid (4, 8, 16), o[b h s d] in blocks (1, 1, 128, 64)      b: grid dim 0 carries a dim of each array that depends on
      q, o  lambda b, h, i: (b, h, i, 0)                          it, so 2 devices run grids (2, 8, 16) on halves
      k, v  lambda b, h, i: (b, h // 4, 0, 0)                  h: 4 steps share a block of k, so at most 2 ways
                                                               i: not where the body asks which step it is

A slice has the smaller grid, the same blocks and the same body. A block that steps of a grid dim write in turn is no
sum of parts: nothing says so, and the dim stays whole, unless the kernel is known by name (named_pallas.py). The report
says which index map, or what in the body, is in the way.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
from jax.interpreters import mlir

from autopart.api.kernels.index_maps import Depends, Flow, steps_per_block
from autopart.api.kernels.named_pallas import named
from autopart.api.kernels.pallas_work import work_of_grid
from autopart.core.importer.host_calls import KernelCall
from autopart.core.kernel_calls.kernel_body import Flat, KernelBody, reading
from autopart.core.kernel_calls.sharding_rule import Factor, Factors, factors_of


def pallas_kernel(ctx: mlir.LoweringRuleContext, params: Mapping[str, Any], read: Sequence[int]) -> KernelCall:
    """A Pallas call, read."""
    call = PallasCall(ctx.primitive, params, tuple(ctx.avals_in), tuple(ctx.avals_out), tuple(read))
    effect, work = bool(getattr(params["compiler_params"], "has_side_effects", False)), work_of_grid(params)
    how, (factors, whole) = named(call), call.factors()
    operands, kernel, interpreted = call.operands, call.for_shapes, call.interpreted
    if how is not None:
        operands, whole, run = (*operands, *how.more), "", how.run
        factors = factors_of(how.rule, [a.shape for a in operands], [a.shape for a in call.results]).reading(read)
        kernel, interpreted = (lambda _: lambda *x: run(x, False)), (lambda _: lambda *x: run(x, True))
    name = call.name if how is None else how.name
    body = KernelBody(name, operands, reading(kernel, read), reading(interpreted, read))
    return KernelCall(body, factors, work, call.key, effect, whole, () if how is None else how.more)


class Stop(Exception):
    """Why a grid dim is not sliced."""


@dataclasses.dataclass(frozen=True)
class PallasCall:
    """A Pallas call as jax traced it: `primitive.bind(*operands, **params)`, and which of its results are read."""

    primitive: Any
    params: Mapping[str, Any]
    operands: tuple[Any, ...]
    results: tuple[Any, ...]
    read: tuple[int, ...]

    @property
    def name(self) -> str:
        """The kernel's name, or its function's."""
        return self.params["name"] or self.params["jaxpr"].debug_info.func_name

    @cached_property
    def key(self) -> tuple[object, ...]:
        """Equal for calls that are alike, of which the same results are read."""
        maps = [(str(m.index_map_jaxpr), *map(id, m.index_map_jaxpr.consts)) for m in self._mapped]
        rest = {name: value for name, value in self.params.items() if name != "grid_mapping"}
        return *self.read, str(self.operands), *maps, str(self.params["grid_mapping"]), str(rest)

    @property
    def grid(self) -> tuple[Any, ...]:
        """Steps along each grid dim; no number where they are known at run time only."""
        return self.params["grid_mapping"].grid

    @property
    def _mapped(self) -> Sequence[Any]:
        """The block mappings: of operands behind the prefetched scalars, then of results."""
        return self.params["grid_mapping"].block_mappings

    @property
    def _scalars(self) -> int:
        """How many operands come first: lengths of grid dims, and what index maps and the body read as it is."""
        return self._lengths + self.params["grid_mapping"].num_index_operands

    @property
    def _lengths(self) -> int:
        """How many grid dims are as long as an operand says."""
        return sum(map(self._is_dynamic, range(len(self.grid))))

    def _is_dynamic(self, grid_dim: int) -> bool:
        return not isinstance(self.grid[grid_dim], int)

    # ---- how it may be sliced

    @cached_property
    def _all_factors(self) -> tuple[Factors, str]:
        """Its factors, and why others are none."""
        shapes = [[["_"] * len(a.shape) for a in avals] for avals in (self.operands, self.results)]
        arrays, sliced, whole = [*shapes[0], *shapes[1]], list[Factor](), list[str]()
        for grid_dim, steps in enumerate(self.grid if self._is_plain else ()):
            if self._is_dynamic(grid_dim) or steps < 2:
                continue
            try:
                dims, ways = self._carried(grid_dim)
            except Stop as stop:
                whole.append(f"grid dim {grid_dim} ({steps} steps): {stop}")
                continue
            for number, dim in dims.items():
                arrays[number][dim] = f"g{grid_dim}"
            sliced.append(Factor(f"g{grid_dim}", ways))
        if not self._is_plain:
            whole.append("its grid is one of cores")
        if not self.grid:
            whole.append("it has no grid")
        operands, results = (tuple(map(tuple, side)) for side in shapes)
        return Factors(operands, results, tuple(f for f in sliced if f.ways > 1)), "; ".join(whole)

    def factors(self) -> tuple[Factors, str]:
        """The same, with the results that are read."""
        all_results, whole = self._all_factors
        return all_results.reading(self.read), whole

    def block(self, number: int) -> tuple[int, ...]:
        """Lengths of the blocks of an operand, or of a result behind them; 0 of those that may overlap."""
        return tuple(_block_length(length) or 0 for length in self._mapped[number - self._scalars].block_shape)

    def depends(self, number: int) -> list[Depends]:
        """What each dim of the index map of such an array depends on."""
        return self._maps[number - self._scalars][0]

    @property
    def _is_plain(self) -> bool:
        return self.params["mesh"] is None

    @cached_property
    def _body(self) -> Flow:
        """What the body asks of grid indices."""
        vmapped = self.params["grid_mapping"].vmapped_dims
        flow = Flow([d for d in range(len(self.grid)) if d not in vmapped])
        rest = len(self.params["jaxpr"].invars) - (self._scalars - self._lengths)
        flow.outputs(self.params["jaxpr"], [*range(self._lengths, self._scalars), *[Depends()] * rest])
        return flow

    @cached_property
    def _maps(self) -> list[tuple[list[Depends], Flow]]:
        """Of each index map what its outputs depend on, and what it reads of the prefetched scalars."""
        found: list[tuple[list[Depends], Flow]] = []
        for mapped in self._mapped:
            jaxpr, flow = mapped.index_map_jaxpr.jaxpr, Flow()
            inputs = [Depends(frozenset({d}), is_index=True) for d in range(len(self.grid))]
            found.append((flow.outputs(jaxpr, [*inputs, *range(self._lengths, self._scalars)]), flow))
        return found

    def _carried(self, grid_dim: int) -> tuple[dict[int, int], int]:
        """(array -> the dim of it that a grid dim carries, in how many slices at most). Raises `Stop` with why not."""
        if grid_dim in self._body.asked:
            raise Stop("the body asks which step it is")
        dims: dict[int, int] = {}
        blocks, period = self.grid[grid_dim], self._body.period.get(grid_dim, 1)
        blocks = 1 if blocks % period else blocks // period
        for number, ((outputs, _), mapped) in enumerate(zip(self._maps, self._mapped, strict=True), self._scalars):
            carrying = [d for d, depends in enumerate(outputs) if grid_dim in depends.dims]
            if not carrying and number - len(self.operands) in self.read:
                raise Stop(f"several steps write one block of {mapped.origin}")
            for dim in carrying:
                blocks = math.gcd(blocks, self._blocks(mapped, outputs[dim], dim, grid_dim, len(carrying)))
                dims[number] = dim
        for flow in (self._body, *(flow for _, flow in self._maps)):
            for number, dim in flow.rows.get(grid_dim, ()):
                if dims.setdefault(number, dim) != dim or self.operands[number].shape[dim] != self.grid[grid_dim]:
                    raise Stop(f"it reads operand {number} at its step in another way")
        for operand, result in self.params["input_output_aliases"]:
            if dims.get(operand) != dims.get(len(self.operands) + result):
                raise Stop(f"result {result} is written over operand {operand}, which it does not go through alike")
        return dims, blocks

    def _blocks(self, mapped: Any, depends: Depends, dim: int, grid_dim: int, count: int) -> int:
        """How many blocks of an array's dim a grid dim walks through, one after the other."""
        where = f"the index map of {mapped.origin}, dim {dim},"
        if count > 1:
            raise Stop(f"the index map of {mapped.origin} has it in {count} dims")
        if depends.unknown or len(depends.dims) > 1:
            others = [str(d) for d in sorted(depends.dims - {grid_dim})] + ["what is read"] * depends.unknown
            raise Stop(f"{where} depends on {' and '.join(others)} too")
        steps = steps_per_block(mapped.index_map_jaxpr, dim, grid_dim, self.grid)
        if steps is None:
            raise Stop(f"{where} does not go through the blocks in order")
        length, blocks = _block_length(mapped.block_shape[dim]), self.grid[grid_dim] // steps
        if length is None or length * blocks != mapped.array_aval.shape[dim]:
            raise Stop(
                f"{where} goes over {mapped.array_aval.shape[dim]} elements in blocks of {mapped.block_shape[dim]}"
            )
        return blocks

    # ---- a slice of it

    def for_shapes(self, avals: Sequence[jax.ShapeDtypeStruct]) -> Flat:
        """The call for what a device holds of its operands."""
        factors, _ = self._all_factors
        shapes = [tuple(a.shape for a in some) for some in (self.operands, avals)]
        cut = factors.ways(shapes[0], shapes[1])
        grid = tuple(s // cut[f"g{d}"] if f"g{d}" in cut else s for d, s in enumerate(self.grid))
        names = [*factors.operands[self._scalars :], *factors.results]
        mapped = [_of_shape(m, n, cut) for m, n in zip(self._mapped, names, strict=True)]
        sliced = dataclasses.replace(self.params["grid_mapping"], grid=grid, block_mappings=tuple(mapped))
        results = tuple(_cut_aval(a, n, cut) for a, n in zip(self.params["out_avals"], factors.results, strict=True))
        params = {**self.params, "grid_mapping": sliced, "out_avals": results}
        if self.params["cost_estimate"] is not None:
            params["cost_estimate"] = _share(self.params["cost_estimate"], math.prod(cut.values()))

        return lambda *operands: self.primitive.bind(*operands, **params)

    def interpreted(self, avals: Sequence[jax.ShapeDtypeStruct]) -> Flat:
        """The same as ops of jax, where the device's compiler does not know the kernel's."""
        return dataclasses.replace(self, params={**self.params, "interpret": True}).for_shapes(avals)


def _block_length(block: Any) -> int | None:
    """Elements of a dim that a block has; None for blocks that may overlap."""
    return {"Squeezed": 1, "Blocked": getattr(block, "block_size", 1)}.get(type(block).__name__)


def _of_shape(mapped: Any, names: Sequence[str], cut: Mapping[str, int]) -> Any:
    return dataclasses.replace(mapped, array_aval=_cut_aval(mapped.array_aval, names, cut), allow_captured_consts=True)


def _cut_aval(aval: Any, names: Sequence[str], cut: Mapping[str, int]) -> Any:
    return aval.update(shape=tuple(size // cut.get(name, 1) for size, name in zip(aval.shape, names, strict=True)))


def _share(estimate: Any, ways: int) -> Any:
    figures = {f.name: getattr(estimate, f.name) for f in dataclasses.fields(estimate)}
    return dataclasses.replace(estimate, **{n: v // ways for n, v in figures.items() if isinstance(v, int)})
