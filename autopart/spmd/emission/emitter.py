"""StableHLO of one redistribution step, and where a device stands in the mesh.

    emitter = Emitter(mesh)
    emitter.begin()                                   once, in the entry block
    for step in plan.steps:
        value = emitter.emit(step, value)             at the current insertion point

Devices are numbered row-major over the mesh, which is how `jax.shard_map` numbers its partitions. A collective works
along the leading dim where it touches several dims at once, between a reshape and a transpose that are local:

    all_to_all <a, b> {0,2 -> 1}, sizes 2 and 2
        4x8x2  reshape       1x4x8x2
               all_to_all    4x4x2x2     pieces of dim 1, by the device (a, b) they came from
               reshape       2x2x4x2x2
               transpose     2x4x2x2x2   a before dim 0, b before dim 2
               reshape       8x2x4
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from autopart.core.doors.jax_internals import ir, is_complex, stablehlo
from autopart.core.mesh import Mesh
from autopart.core.mlir_values import i64
from autopart.spmd.emission.reductions import reduced, reducer
from autopart.spmd.emission.stretch_emission import StretchEmission
from autopart.spmd.redistribution import DistributedType, Step, SubAxis
from autopart.spmd.redistribution.emission import Regroup, emission, reordered
from autopart.spmd.redistribution.stretch_step import StretchStep
from autopart.spmd.redistribution.types import device_strides

_CHANNEL = 1
"""jax gives all its collectives this channel; XLA renumbers them."""


class Emitter:
    """Emits collectives for a mesh; `begin` comes first, in the entry block.

    `slices` has the dynamic slices so far, `exchanges` the number of collectives.
    """

    def __init__(self, mesh: Mesh):
        self._mesh = mesh
        self._position: list[ir.Value] = []
        self._groups: dict[tuple, ir.Attribute] = {}
        self.slices: list[ir.Operation] = []
        self.exchanges = 0

    def begin(self) -> None:
        """Works out this device's coordinate on each axis."""
        scalar = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
        device = stablehlo.convert(scalar, stablehlo.partition_id())
        sizes = self._mesh.axis_sizes
        for index, size in enumerate(sizes):
            place = stablehlo.divide(device, _i32(math.prod(sizes[index + 1 :])))
            self._position.append(stablehlo.remainder(place, _i32(size)))

    def axis_size(self, axis: int) -> int:
        """Number of devices along an axis."""
        return self._mesh.axis_sizes[axis]

    def axis_position(self, axis: int) -> ir.Value:
        """i32 scalar: this device's coordinate on an axis."""
        return self._position[axis]

    def emit(self, step: Step, value: ir.Value, spelling: int = 0, order: Sequence[int] = ()) -> ir.Value:
        """The step on a local value of shape `step.source.local_shape`; one of `step.left_shape`.

        The groups of devices may be listed in several orders, see `Step.spellings`. `order`: of its dims in
        memory, if it is images (`image_orders.py`).
        """
        if isinstance(step, StretchStep):
            return self._stretch(step, value)
        if step.kind == "all_slice":
            return self._all_slice(step, value)
        self.exchanges += 1
        if step.slices:
            return self._slice_of_sum(step, self._reduced(step, value))
        if step.kind == "all_permute":
            return self._all_permute(step, value)
        return self._exchange(step, value, spelling, order)

    # ---- kinds

    def _all_slice(self, step: Step, value: ir.Value) -> ir.Value:
        starts = [_i32(0)] * len(step.target.shape)
        for dim, axes in step.sliced:
            tile = step.target.local_shape[dim]
            terms = []
            for axis in axes:
                terms.append(stablehlo.multiply(self._coordinate(axis), _i32(tile)))
                tile *= axis.size
            starts[dim] = functools.reduce(stablehlo.add, terms)
        return self._sliced(step, value, starts)

    def _slice_of_sum(self, step: Step, value: ir.Value) -> ir.Value:
        """The tile of what an all_reduce left, by its number in a table.

        XLA:TPU makes a reduce_scatter of the two only if the table is read by the partition number as it is: not by one
        that was converted, and not of numbers that are computed. Tables of numbers are equal for tiles of any size.
        """
        starts, scalar = [_i32(0)] * len(step.target.shape), _i32(0).type
        offsets = step.target.base_offsets() - step.view.base_offsets()
        for dim, _ in step.sliced:
            tile = step.target.local_shape[dim]
            table = stablehlo.constant(_dense(np.ascontiguousarray(offsets[:, dim] // tile, np.int32)))
            number = stablehlo.dynamic_slice(table, [stablehlo.partition_id()], ir.DenseI64ArrayAttr.get([1]))
            starts[dim] = stablehlo.multiply(stablehlo.reshape(scalar, number), _i32(tile))
        return self._sliced(step, value, starts)

    def _sliced(self, step: Step, value: ir.Value, starts: list[ir.Value]) -> ir.Value:
        local = stablehlo.dynamic_slice(value, starts, ir.DenseI64ArrayAttr.get(list(step.target.local_shape)))
        self.slices.append(local.owner.operation)
        return local

    def _exchange(self, step: Step, value: ir.Value, spelling: int, order: Sequence[int]) -> ir.Value:
        """all_gather, all_to_all, reduce_scatter or all_reduce, as `emission` says."""
        how, kind = emission(step), step.moved_by
        if order and not step.gathers:
            how = reordered(how, step.source.local_shape, order)
        attributes = self._grouped(step.target, how.order, spelling)
        if "split" in how.dims:
            attributes["split_count"] = i64(math.prod(a.size for a in how.order))
        value = value if how.before is None else _regrouped(value, how.before)
        if kind == "reduce_scatter" and is_complex(value):
            attributes |= _dims(scatter=how.dims["scatter"] + 1)
            value = _of_parts(_collective(kind, _parts(value), (2, *how.shape), attributes, step.code))
        else:
            attributes |= _dims(**how.dims)
            value = _collective(kind, value, how.shape, attributes, step.code if kind == step.kind else 0)
        value = value if how.after is None else _regrouped(value, how.after)
        return reduced(value, -1, step.code) if step.gathers else value

    def _reduced(self, step: Step, value: ir.Value) -> ir.Value:
        """The reduction of a reduce_scatter, whole; devices of a group stand in the order of their tiles."""
        attributes = self._grouped(step.target, emission(step).order)
        return _collective("all_reduce", value, step.source.local_shape, attributes, step.code)

    def _all_permute(self, step: Step, value: ir.Value) -> ir.Value:
        return _permuted(value, source_target_pairs(step))

    def _stretch(self, step: StretchStep, value: ir.Value) -> ir.Value:
        self.exchanges += step.collectives if step.kind != "all_slice" else 0
        emission = StretchEmission(step, self._mesh, self.axis_position, _permuted)
        stretch = emission.emit(value)
        self.slices += emission.slices
        return stretch

    # ---- devices

    def _coordinate(self, axis: SubAxis) -> ir.Value:
        index = self._mesh.index(axis.name)
        place = self._position[index]
        if axis.stride > 1:
            place = stablehlo.divide(place, _i32(axis.stride))
        if axis.stride * axis.size < self._mesh.axis_sizes[index]:
            place = stablehlo.remainder(place, _i32(axis.size))
        return place

    def _grouped(self, placed: DistributedType, order: Sequence[SubAxis], spelling: int = 0) -> dict[str, ir.Attribute]:
        key = (tuple(order), placed.devices, spelling)
        if key not in self._groups:
            groups = replica_groups(placed, order)
            self._groups[key] = _dense(np.roll(groups, spelling, axis=0))
        return {"replica_groups": self._groups[key], "channel_handle": stablehlo.ChannelHandle.get(_CHANNEL, 1)}


def replica_groups(placed: DistributedType, order: Sequence[SubAxis]) -> np.ndarray:
    """int64[groups, size]: devices that differ along the axes of `order` only, the last axis varying fastest."""
    strides = device_strides(placed.mesh)
    offsets, points = np.zeros(1, np.int64), np.arange(placed.device_count)
    leaders = np.ones(placed.device_count, np.bool_)
    for axis in order:
        stride = strides[axis.name] * axis.stride
        offsets = (offsets[:, None] + np.arange(axis.size) * stride).reshape(-1)
        leaders &= points // stride % axis.size == 0
    groups = points[leaders][:, None] + offsets
    groups = groups if placed.devices is None else np.array(placed.devices)[groups]
    return np.ascontiguousarray(groups, np.int64)


def source_target_pairs(step: Step) -> np.ndarray:
    """int64[devices, 2]: from whom each device gets its tile; itself where it holds that tile already.

    Devices that hold equal tiles are paired along the axes that the step leaves alone.
    """
    strides = device_strides(step.source.mesh)
    devices = np.arange(step.source.device_count)
    aside = devices.copy()
    for axis in step.axes:
        stride = strides[axis.name] * axis.stride
        aside -= devices // stride % axis.size * stride
    held, wanted = (_tile_numbers(t) * len(devices) + aside for t in (step.source, step.target))
    stays = held == wanted
    givers, takers = devices[~stays], devices[~stays]
    givers = givers[np.argsort(held[givers], kind="stable")]
    takers = takers[np.argsort(wanted[takers], kind="stable")]
    pairs = np.stack([np.r_[devices[stays], givers], np.r_[devices[stays], takers]], axis=1)
    return np.ascontiguousarray(pairs[np.argsort(pairs[:, 0], kind="stable")], np.int64)


def _tile_numbers(type_: DistributedType) -> np.ndarray:
    numbers = np.zeros(type_.device_count, np.int64)
    offsets = type_.base_offsets()
    for dim, (size, tile) in enumerate(zip(type_.shape, type_.local_shape, strict=True)):
        if tile:
            numbers = numbers * (size // tile) + offsets[:, dim] // tile
    return numbers


# ---- MLIR


def _permuted(value: ir.Value, pairs: np.ndarray) -> ir.Value:
    """What arrives if each device sends to another; zeros where nothing does."""
    attributes = {
        "source_target_pairs": _dense(pairs),
        "channel_handle": stablehlo.ChannelHandle.get(_CHANNEL, 1),
    }
    return _collective("collective_permute", value, ir.RankedTensorType(value.type).shape, attributes)


def _collective(
    kind: str, value: ir.Value, shape: Sequence[int], attributes: dict[str, ir.Attribute], code: int = 0
) -> ir.Value:
    element = ir.RankedTensorType(value.type).element_type
    result = ir.RankedTensorType.get(list(shape), element)
    if kind not in ("all_to_all", "collective_permute"):
        attributes = attributes | {"use_global_device_ids": ir.UnitAttr.get()}
    op = ir.Operation.create(f"stablehlo.{kind}", [result], [value], attributes, regions=1 if code else 0)
    if code:
        reducer(op, ir.RankedTensorType.get([], element), code)
    return op.results[0]


def _parts(value: ir.Value) -> ir.Value:
    """Real and imaginary parts of complex numbers along a new leading dim: the TPU compiler scatters no complex sum."""
    parts = stablehlo.real(value), stablehlo.imag(value)
    shape = ir.RankedTensorType(parts[0].type).shape
    return stablehlo.concatenate([_reshape(part, (1, *shape)) for part in parts], dimension=0)


def _of_parts(parts: ir.Value) -> ir.Value:
    """The complex numbers of what `_parts` leaves."""
    shape = list(ir.RankedTensorType(parts.type).shape)
    zeros, ones = [0] * len(shape), [1] * len(shape)

    def part(number: int) -> ir.Value:
        bounds = [number, *zeros[1:]], [number + 1, *shape[1:]], ones
        return _reshape(stablehlo.slice(parts, *map(ir.DenseI64ArrayAttr.get, bounds)), shape[1:])

    return stablehlo.complex(part(0), part(1))


def _dims(**dims: int) -> dict[str, ir.Attribute]:
    names = {"split": "split_dimension", "concat": "concat_dimension", "scatter": "scatter_dimension"}
    return {names.get(name, f"{name}_dim"): i64(dim) for name, dim in dims.items()}


def _regrouped(value: ir.Value, how: Regroup) -> ir.Value:
    return _reshape(_transpose(_reshape(value, how.read), how.order), how.result)


def _reshape(value: ir.Value, shape: Sequence[int]) -> ir.Value:
    type_ = ir.RankedTensorType(value.type)
    if list(type_.shape) == list(shape):
        return value
    return stablehlo.reshape(ir.RankedTensorType.get(list(shape), type_.element_type), value)


def _transpose(value: ir.Value, order: Sequence[int]) -> ir.Value:
    if list(order) == list(range(len(order))):
        return value
    return stablehlo.transpose(value, ir.DenseI64ArrayAttr.get(list(order)))


def _dense(numbers: np.ndarray) -> ir.Attribute:
    return ir.DenseElementsAttr.get(cast(Any, numbers), shape=numbers.shape)


def _i32(number: int) -> ir.Value:
    i32 = ir.IntegerType.get_signless(32)
    return stablehlo.constant(
        ir.DenseElementsAttr.get_splat(ir.RankedTensorType.get([], i32), ir.IntegerAttr.get(i32, number))
    )
