"""Pallas calls, by their grid and block specs.

    grid (4, 8, 16), o[b h s d] in blocks (1, 1, 128, 64)      b: grid dim 0 carries a dim of each array that depends on
      q, o  lambda b, h, i: (b, h, i, 0)                          it, so 2 devices run grids (2, 8, 16) on halves
      k, v  lambda b, h, i: (b, h // 4, 0, 0)                  h: 4 steps share a block of k, so at most 2 ways
                                                               i: not where the body asks which step it is

A slice has the smaller grid, the same blocks and the same body. Where the body may be cut along a dim of its blocks
(body_dims.py), and one block has all of it, or steps go through it one by one, a slice has smaller blocks; so has one
of a call without a grid. The report says which index map, or what in the body, is in the way.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax.interpreters import mlir

from autopart.api.kernels.body_dims import BodyDims, Dim, resized
from autopart.api.kernels.grid_digits import Digit, Walk, blocks, digits, keeps_remainder, of_slice
from autopart.api.kernels.index_maps import Depends, Flow
from autopart.api.kernels.named_pallas import named
from autopart.api.kernels.pallas_work import work_of_grid
from autopart.api.kernels.running_sums import RunningSums, with_ends
from autopart.core.importer.host_calls import KernelCall
from autopart.core.importer.jaxprs import Use
from autopart.core.kernel_calls.kernel_body import Flat, KernelBody, reading
from autopart.core.kernel_calls.sharding_rule import Factor, Factors, factors_of
from autopart.core.op import SUM

_MOST_STEPS = 1 << 20
"""Of longer walks through an array not every step is looked at, and the grid dim is whole."""


def pallas_kernel(ctx: mlir.LoweringRuleContext, params: Mapping[str, Any], use: Use) -> KernelCall:
    """A Pallas call, use.read."""
    call = PallasCall(ctx.primitive, params, tuple(ctx.avals_in), tuple(ctx.avals_out), tuple(use.read))
    effect = bool(getattr(params["compiler_params"], "has_side_effects", False))
    work, products = work_of_grid(params, call.least_grid, call.least_grid != call.grid, use.known[call.lengths :])
    how, (factors, whole) = named(call), call.factors()
    operands, kernel, interpreted = call.operands, call.for_shapes, call.interpreted
    if how is not None:
        operands, whole, run = (*operands, *how.more), "", how.run
        factors = factors_of(how.rule, [a.shape for a in operands], [a.shape for a in call.results]).reading(use.read)
        kernel, interpreted = (lambda _: lambda *x: run(x, False)), (lambda _: lambda *x: run(x, True))
    name = call.name if how is None else how.name
    body = KernelBody(name, operands, reading(kernel, use.read), reading(interpreted, use.read))
    more = () if how is None else how.more
    return KernelCall(body, factors, work, call.key, effect, whole, more, products)


_SUBLANES = 8
"""Rows of a TPU's tile of 32-bit numbers."""


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

    @property
    def sources(self) -> list[str]:
        """Names and lines of the functions that its body and its index maps are."""
        jaxprs = [self.params["jaxpr"], *(m.index_map_jaxpr.jaxpr for m in self._mapped)]
        return [str(jaxpr.debug_info.func_src_info) for jaxpr in jaxprs]

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
        return self.lengths + self.params["grid_mapping"].num_index_operands

    @property
    def lengths(self) -> int:
        """How many grid dims are as long as an operand says."""
        return sum(map(self._is_dynamic, range(len(self.grid))))

    def _is_dynamic(self, grid_dim: int) -> bool:
        return not isinstance(self.grid[grid_dim], int)

    @property
    def least_grid(self) -> tuple[int, ...]:
        """The grid; of lengths that are read, the first is as many steps as write each block of a result once."""
        known = [1 if self._is_dynamic(d) else steps for d, steps in enumerate(self.grid)]
        for number, result in enumerate(self.results, len(self.operands)):
            depends = frozenset[int]().union(*(each.dims for each in self.depends(number)))
            dynamic = [d for d in sorted(depends) if self._is_dynamic(d)]
            blocks = [-(-size // length) for size, length in zip(result.shape, self.block(number), strict=True)]
            if dynamic:
                others = math.prod(known[d] for d in depends - {dynamic[0]})
                known[dynamic[0]] = max(known[dynamic[0]], -(-math.prod(blocks) // others))
        return tuple(known)

    # ---- how it may be sliced

    @cached_property
    def _sliced(self) -> tuple[Factors, str, dict[str, Digit], dict[str, Dim]]:
        """Its factors, why others are none, and by name the digits and the classes of the body's dims that they are."""
        shapes = [[["_"] * len(a.shape) for a in avals] for avals in (self.operands, self.results)]
        arrays, sliced, whole = [*shapes[0], *shapes[1]], dict[Digit, Factor](), list[str]()
        for grid_dim, steps in enumerate(self.grid if self.params["mesh"] is None else ()):
            if self._is_dynamic(grid_dim) or steps < 2:
                continue
            stops = list[str]()
            try:
                digits = self._digits(grid_dim)
            except Stop as stop:
                digits, stops = [], [str(stop)]
            for digit in digits:
                try:
                    dims, ways, code = self._carried(digit)
                except Stop as stop:
                    stops.append(str(stop))
                    continue
                if ways > 1 and all(arrays[number][dim] == "_" for number, dim in dims.items()):
                    for number, dim in dims.items():
                        arrays[number][dim] = digit.name
                    sliced[digit] = Factor(digit.name, ways, code)
            if stops and not any(digit in sliced for digit in digits):
                whole.append(f"grid dim {grid_dim} ({steps} steps): {stops[0]}")
        if self.params["mesh"] is not None:
            whole.append("its grid is one of cores")
        names, factors = {digit.name: digit for digit in sliced}, {f.name: f for f in sliced.values()}
        of_blocks = self._of_blocks(arrays, names, factors) if self.params["mesh"] is None else {}
        if not self.grid and not factors:
            whole.append("it has no grid, and its body works on whole blocks")
        operands, results = (tuple(map(tuple, side)) for side in shapes)
        return Factors(operands, results, tuple(factors.values())), "; ".join(whole), names, of_blocks

    def _of_blocks(
        self, arrays: list[list[str]], digits: Mapping[str, Digit], factors: dict[str, Factor]
    ) -> dict[str, Dim]:
        """Classes of factors that cut blocks, which are added to `factors`, and to the names of dims of `arrays`."""
        found, first, count = dict[str, Dim](), len(self.operands), len(self.operands) + len(self.results)
        places = [self._dims_of(number) for number in range(self.lengths, count)]
        for dims, parts, root in self._blocks.factors():
            at = [(ref + self.lengths, places[ref][d]) for ref, d in dims if ref < len(places)]
            in_parts = {ref + self.lengths for ref in parts}
            others = {first + r for r in self.read} - {number for number, _ in at}
            aliased = [(k, first + r) for k, r in self.params["input_output_aliases"]]
            held = dict(at)
            names = {arrays[number][dim] for number, dim in at}
            if (
                len(names) != 1
                or len(held) < len(at)
                or not others <= in_parts
                or all(n < first for n in {*held, *others})
            ):
                continue
            if any(held.get(k) != held.get(r) for k, r in aliased) or (others and aliased):
                continue
            (name,) = names
            (size,) = {self._size(number, dim) for number, dim in at}
            code = SUM if others else None
            if name == "_":
                if all(self._is_one_block(number, dim) for number, dim in at):
                    name = f"r{len(found)}"
                    found[name], factors[name] = root, Factor(name, size, code)
                    for number, dim in at:
                        arrays[number][dim] = name
            elif factors[name].code == code and self._is_in_order(digits[name], arrays, at):
                found[name], factors[name] = root, Factor(name, size, code)
        return found

    def _is_in_order(self, digit: Digit, arrays: Sequence[Sequence[str]], at: Sequence[tuple[int, int]]) -> bool:
        """Whether steps go block by block through these dims, and nothing else depends on which step it is."""
        carried = {(n, d) for n, names in enumerate(arrays) for d, name in enumerate(names) if name == digit.name}
        grid_dim, steps = digit.grid_dim, np.arange(digit.steps)[:, None]
        asks = grid_dim in self._body.period or (grid_dim in self._body.asked and grid_dim in self._sums.asked)
        if asks or digit.steps != self.grid[grid_dim] or carried != set(at):
            return False
        walks = [walk for number, dim, walk in self._walks(grid_dim) if (number, dim) in carried]
        return all((w.first == steps * w.block).all() and w.block * digit.steps == w.size for w in walks)

    def _is_one_block(self, number: int, dim: int) -> bool:
        if number < self._scalars:
            return True
        length = self._mapped[number - self._scalars].block_shape[dim]
        depends = self.depends(number)[dim]
        is_plain = not any(getattr(length, "padding", ())) and not depends.dims and not depends.unknown
        return is_plain and _block_length(length) == self._size(number, dim)

    def _size(self, number: int, dim: int) -> int:
        return (*self.operands, *self.results)[number].shape[dim]

    def _dims_of(self, number: int) -> list[int]:
        """Dims of an array that its reference in the body has."""
        if number < self._scalars:
            return list(range(self.operands[number].ndim))
        block = self._mapped[number - self._scalars].block_shape
        return [d for d, length in enumerate(block) if hasattr(length, "block_size")]

    @cached_property
    def _blocks(self) -> BodyDims:
        """Along which dims the body may be cut."""
        return BodyDims(self.params["jaxpr"])

    def factors(self) -> tuple[Factors, str]:
        """Its factors, with the results that are read, and why others are none."""
        all_results, whole, *_ = self._sliced
        return all_results.reading(self.read), whole

    def block(self, number: int) -> tuple[int, ...]:
        """Lengths of the blocks of an operand, or of a result behind them."""
        return tuple(map(_block_length, self._mapped[number - self._scalars].block_shape))

    def depends(self, number: int) -> list[Depends]:
        """What each dim of the index map of such an array depends on."""
        return self._maps[number - self._scalars][0]

    @cached_property
    def _axes(self) -> list[int]:
        """Grid dims that a body asks for, by axis."""
        return [d for d in range(len(self.grid)) if d not in self.params["grid_mapping"].vmapped_dims]

    @cached_property
    def _body(self) -> Flow:
        """What the body asks of grid indices."""
        flow = Flow(self._axes)
        rest = len(self.params["jaxpr"].invars) - (self._scalars - self.lengths)
        flow.outputs(self.params["jaxpr"], [*range(self.lengths, self._scalars), *[Depends()] * rest])
        return flow

    @cached_property
    def _sums(self) -> RunningSums:
        """What steps pass on to the next ones."""
        return RunningSums(self._axes, self.grid).follow(
            self.params["jaxpr"], len(self.operands) - self.lengths, self._scalars - self.lengths
        )

    @property
    def _scratch(self) -> range:
        """References of the body behind those of operands and results."""
        return range(len(self.operands) + len(self.results) - self.lengths, len(self.params["jaxpr"].invars))

    @cached_property
    def _maps(self) -> list[tuple[list[Depends], Flow]]:
        """Of each index map what its outputs depend on, and what it reads of the prefetched scalars."""
        found: list[tuple[list[Depends], Flow]] = []
        for mapped in self._mapped:
            jaxpr, flow = mapped.index_map_jaxpr.jaxpr, Flow()
            inputs = [Depends(frozenset({d}), is_index=True) for d in range(len(self.grid))]
            found.append((flow.outputs(jaxpr, [*inputs, *range(self.lengths, self._scalars)]), flow))
        return found

    def _walks(self, grid_dim: int) -> Iterator[tuple[int, int, Walk]]:
        """(array, dim of it, how it is walked through) where a dim depends on a grid dim. Raises `Stop`."""
        for number, ((outputs, _), mapped) in enumerate(zip(self._maps, self._mapped, strict=True), self._scalars):
            for dim, depends in enumerate(outputs):
                if grid_dim in depends.dims:
                    yield number, dim, self._walk(mapped, depends, dim, grid_dim)

    def _walk(self, mapped: Any, depends: Depends, dim: int, grid_dim: int) -> Walk:
        dims, length = (
            [grid_dim, *sorted(depends.dims - {grid_dim})],
            mapped.block_shape[min(dim, len(mapped.block_shape) - 1)],
        )
        if type(length).__name__ == "BoundedSlice" or any(getattr(length, "padding", ())):
            raise Stop(f"the blocks of {mapped.origin} have several lengths")
        known = not depends.unknown and not any(map(self._is_dynamic, dims))
        if not known or math.prod(self.grid[d] for d in dims) > _MOST_STEPS:
            others = [*map(str, dims[1:]), *["what is read"] * (not known)]
            raise Stop(f"the index map of {mapped.origin}, dim {dim}, depends on {' and '.join(others)} too")
        first = blocks(mapped.index_map_jaxpr, dim, dims, self.grid).reshape(self.grid[grid_dim], -1)
        is_by_blocks = type(length).__name__ == "Blocked"
        return Walk(
            first * (_block_length(length) if is_by_blocks else 1), _block_length(length), mapped.array_aval.shape[dim]
        )

    def _digits(self, grid_dim: int) -> list[Digit]:
        walks = [walk for _, _, walk in self._walks(grid_dim)]
        return digits(grid_dim, self.grid[grid_dim], walks, self._body.period.get(grid_dim, 1))

    def _carried(self, digit: Digit) -> tuple[dict[int, int], int, int | None]:
        """(array -> the dim of it that a digit carries, in how many slices at most, SUM if results are in parts).

        Raises `Stop` with why not.
        """
        dims, code, ways, grid_dim = dict[int, int](), None, digit.steps, digit.grid_dim
        for number, dim, walk in self._walks(grid_dim):
            most, carries = walk.slices(digit)
            mapped = self._mapped[number - self._scalars]
            if carries and (most == 0 or dims.setdefault(number, dim) != dim):
                raise Stop(self._why_not(mapped, self.depends(number), dim, grid_dim, walk))
            ways = math.gcd(ways, most)
        results = range(len(self.operands), len(self.operands) + len(self.results))
        writes = [n for n in results if n not in dims and n - len(self.operands) in self.read]
        if writes or grid_dim in self._body.asked:
            code = self._sum_along(digit)
        if writes and code is None:
            raise Stop(f"several steps write one block of {self._mapped[writes[0] - self._scalars].origin}")
        if code is None and grid_dim in self._body.asked:
            raise Stop("the body asks which step it is")
        if code is None and self._sums.passes_on(grid_dim, self._scratch, self._parallel):
            raise Stop("steps may read in scratch what others left there")
        period, steps = self._body.period.get(grid_dim, 1), self.grid[grid_dim]
        ways = next(
            w for w in range(ways, 0, -1) if ways % w == 0 and (w == 1 or keeps_remainder(digit, w, period, steps))
        )
        flows = (self._body, *(flow for _, flow in self._maps))
        for flow in flows:
            for number, dim in flow.rows.get(grid_dim, ()):
                if dims.setdefault(number, dim) != dim or self.operands[number].shape[dim] != steps:
                    raise Stop(f"it reads operand {number} at its step in another way")
        for operand, result in self.params["input_output_aliases"]:
            if operand not in dims and not self._is_asked_for(operand) and len(self.operands) + result in dims:
                dims[operand] = dims[len(self.operands) + result]  # what is not written over stays as it is
            if dims.get(operand) != dims.get(len(self.operands) + result):
                raise Stop(f"result {result} is written over operand {operand}, which it does not go through alike")
        if not digit.is_major(self.grid) and (self._scalars or any(grid_dim in flow.rows for flow in flows)):
            raise Stop("its index maps read numbers")
        return dims, ways, code

    def _is_asked_for(self, operand: int) -> bool:
        """Whether the body does anything with an operand."""
        reference = self.params["jaxpr"].invars[operand - self.lengths]
        return any(reference in equation.invars for equation in self.params["jaxpr"].eqns)

    def _sum_along(self, digit: Digit) -> int | None:
        """SUM if each step along a grid dim adds to what it does not write alone."""
        first = len(self.operands) - self.lengths
        depends = {
            first + r: sorted(frozenset().union(*(d.dims for d in self.depends(len(self.operands) + r))))
            for r in self.read
        }
        whole = digit.steps == self.grid[digit.grid_dim]
        return SUM if whole and self._sums.is_sum(digit.grid_dim, depends, self._scratch) else None

    @property
    def _parallel(self) -> list[int]:
        """Grid dims whose steps may run in any order, as the call says, and those over which it is mapped."""
        said = getattr(self.params["compiler_params"], "dimension_semantics", None) or ()
        parallel = [d for d, how in zip(self._axes, said, strict=False) if "parallel" in str(how).lower()]
        return [*parallel, *self.params["grid_mapping"].vmapped_dims]

    def _why_not(self, mapped: Any, outputs: list[Depends], dim: int, grid_dim: int, walk: Walk) -> str:
        having = [d for d, depends in enumerate(outputs) if grid_dim in depends.dims]
        if len(having) > 1:
            return f"the index map of {mapped.origin} has it in {len(having)} dims"
        where, others = f"the index map of {mapped.origin}, dim {dim},", sorted(outputs[dim].dims - {grid_dim})
        if others:
            return f"{where} depends on {' and '.join(map(str, others))} too"
        if walk.first.max() + walk.block != walk.size:
            return f"{where} goes over {walk.size} elements in blocks of {walk.block}"
        return f"{where} does not go through the blocks in order"

    # ---- a slice of it

    def for_shapes(self, avals: Sequence[jax.ShapeDtypeStruct]) -> Flat:
        """The call for what a device holds of its operands."""
        factors, _, names, classes = self._sliced
        shapes = [tuple(a.shape for a in some) for some in (self.operands, avals)]
        cut = factors.ways(shapes[0], shapes[1])
        smaller = {
            n: root for n, root in classes.items() if cut.get(n, 1) > 1 and (n not in names or names[n].steps % cut[n])
        }
        of_digits = {digit: 1 if name in smaller else cut.get(name, 1) for name, digit in names.items()}
        ways = [math.prod(w for digit, w in of_digits.items() if digit.grid_dim == d) for d in range(len(self.grid))]
        grid = [s if w == 1 else s // w for s, w in zip(self.grid, ways, strict=True)]
        lengths = dict[str, int]()
        for name in smaller:
            block = self._blocks.size(smaller[name])
            local = block * (names[name].steps if name in names else 1) // cut[name]
            lengths[name] = _block_of(local, block)
            if name in names:
                grid[names[name].grid_dim] = local // lengths[name]
        ends = {equation: grid[d] - 1 for equation, d in self._sums.ends.items() if grid[d] != self.grid[d]}
        body = with_ends(self.params["jaxpr"], ends) if ends else self.params["jaxpr"]
        body = self._blocks.cut(body, {smaller[name]: length for name, length in lengths.items()})
        arrays = [*factors.operands[self._scalars :], *factors.results]
        references = body.invars[self._scalars - self.lengths :]
        mapped = [
            dataclasses.replace(
                m,
                array_aval=_cut_aval(m.array_aval, n, cut),
                block_shape=tuple(
                    dataclasses.replace(b, block_size=lengths[name]) if name in lengths else b
                    for b, name in zip(m.block_shape, n, strict=True)
                ),
                transformed_block_aval=resized(m.transformed_block_aval, ref.aval.shape),
                index_map_jaxpr=of_slice(m.index_map_jaxpr, of_digits, self.grid),
                allow_captured_consts=True,
            )
            for m, n, ref in zip(self._mapped, arrays, references, strict=False)
        ]
        scratch = (
            tuple(body.invars[n].aval for n in self._scratch) if lengths else self.params["grid_mapping"].scratch_avals
        )
        sliced = dataclasses.replace(
            self.params["grid_mapping"], grid=tuple(grid), block_mappings=tuple(mapped), scratch_avals=scratch
        )
        results = tuple(_cut_aval(a, n, cut) for a, n in zip(self.params["out_avals"], factors.results, strict=True))
        params = {**self.params, "grid_mapping": sliced, "out_avals": results, "jaxpr": body}
        if self.params["cost_estimate"] is not None:
            params["cost_estimate"] = _share(self.params["cost_estimate"], math.prod(cut.values()))

        return lambda *operands: self.primitive.bind(*operands, **params)

    def interpreted(self, avals: Sequence[jax.ShapeDtypeStruct]) -> Flat:
        """The same as ops of jax, where the device's compiler does not know the kernel's."""
        return dataclasses.replace(self, params={**self.params, "interpret": True}).for_shapes(avals)


def _block_length(block: Any) -> int:
    """Elements of a dim that a block has."""
    return int(getattr(block, "block_size", 1))


def _block_of(local: int, block: int) -> int:
    """Into which blocks a slice goes: as long as may be, and whole tiles of a TPU if blocks were."""
    fits = [b for b in range(1, min(local, block) + 1) if local % b == 0]
    return max(fits, key=lambda b: (b == local or block % _SUBLANES > 0 or b % _SUBLANES == 0, b))


def _cut_aval(aval: Any, names: Sequence[str], cut: Mapping[str, int]) -> Any:
    return aval.update(shape=tuple(size // cut.get(name, 1) for size, name in zip(aval.shape, names, strict=True)))


def _share(estimate: Any, ways: int) -> Any:
    figures = {f.name: getattr(estimate, f.name) for f in dataclasses.fields(estimate)}
    return dataclasses.replace(estimate, **{n: v // ways for n, v in figures.items() if isinstance(v, int)})
