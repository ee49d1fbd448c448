"""Sharding constraints that a model was written with, in both forms that jax gives them.

    sdy.sharding_constraint %h <@mesh, [{"batch"}, {?}]>                                       Shardy
    custom_call @Sharding(%h) {mhlo.sharding = "{devices=[4,1,2]<=[8] last_tile_dim_replicate}",  GSPMD
                               backend_config = "unspecified_dims=[1]"}
    both over {batch:4, model:2}      ->      dims (("batch",), None)      None: left to others

A constraint tells of the axes of its own mesh. On a laptop, the mesh of one device, or of axes of size one, is a
stand-in for a larger one: what is whole there may be tiled elsewhere.

    %h <@mesh, [{}, {}]>        @mesh = <["d"=1]>         says nothing; random keys have such, over no mesh at all
    %h <@mesh, [{"batch"}, {}]> @mesh = <["batch"=1]>     tiled on batch; nothing is said of model

On its way through the program a constraint is a tag: `tag_of_constraint` writes the tag's name, `constraint_of`
reads it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from autopart.base.errors import MeshError
from autopart.core.doors.jax_internals import ir, sdy
from autopart.core.importer.module_names import quoted_text, unescaped
from autopart.core.importer.module_symbols import mesh_of, module_of
from autopart.core.mesh import Mesh

Dims = tuple[tuple[str, ...] | None, ...]
"""For each dim the mesh axes that tile it, outermost first; None where the constraint leaves it open."""


class Constraint(NamedTuple):
    """The dims of one value, and the mesh axes that they tell of: along any other, nothing is said."""

    dims: Dims
    axes: frozenset[str]

    @property
    def says(self) -> bool:
        """False where it leaves the value as it is."""
        return any(self.dims) or (bool(self.axes) and None not in self.dims)


_TAG = "sharding constraint "
_AXIS = re.compile(r"\"((?:[^\"\\]|\\.)*)\"=(\d+)")
_DIM = re.compile(r"\{((?:[^{}\"]|\"(?:[^\"\\]|\\.)*\")*)\}")
_NAME = re.compile(r"\"((?:[^\"\\]|\\.)*)\"(:\()?")
_TILES = re.compile(r"\{devices=\[([\d,]+)\](?:<=\[([\d,]+)\](?:T\(([\d,]+)\))?|([\d,]+))(.*)\}")
_OPEN = re.compile(r"unspecified_dims=\[([\d,]+)\]")


def tag_of_constraint(op: ir.Operation) -> str:
    """The tag that stands for the constraint; empty where the op constrains nothing."""
    if op.name in ("sdy.sharding_constraint", "sdy.reshard"):
        return _shardy_tag(op, sdy.TensorShardingAttr(op.attributes["sharding"]))
    attributes = op.attributes
    if op.name != "stablehlo.custom_call" or quoted_text(attributes["call_target_name"]) != "Sharding":
        return ""
    text = quoted_text(attributes["mhlo.sharding"]) if "mhlo.sharding" in attributes else ""
    config = quoted_text(attributes["backend_config"]) if "backend_config" in attributes else ""
    says = not _is_for_one_device(op) and (text == "{replicated}" or _TILES.match(text))
    return f"{_TAG}{text} {config}".rstrip() if says else ""


def _shardy_tag(op: ir.Operation, sharding: sdy.TensorShardingAttr) -> str:
    """With the mesh in the place of its name, which only the module knows."""
    mesh = mesh_of(op, sharding.mesh_or_ref)
    named = any(list(sdy.DimensionShardingAttr(d).axes) for d in sharding.dimension_shardings)
    if not named and all(sdy.MeshAxisAttr(axis).size == 1 for axis in mesh.axes):
        return ""
    with op.context:
        return _TAG + str(sdy.TensorShardingAttr.get(mesh, list(sharding.dimension_shardings)))


def _is_for_one_device(op: ir.Operation) -> bool:
    """True where the module says so: GSPMD's form of a constraint names no mesh."""
    attributes = module_of(op).attributes
    return "mhlo.num_partitions" in attributes and quoted_text(attributes["mhlo.num_partitions"]) == "1"


def is_constraint(tag: str) -> bool:
    """True for the name of a tag that stands for a constraint."""
    return tag.startswith(_TAG)


def constraint_of(tag: str, mesh: Mesh, rank: int) -> Constraint:
    """What the constraint says of each of `rank` dims. Raises `MeshError` where that is not in terms of `mesh`."""
    text = tag.removeprefix(_TAG)
    if text.startswith("{"):
        return Constraint(_gspmd(text, mesh, rank), frozenset(mesh.axis_names))
    sizes = {_axis_name(name): int(size) for name, size in _AXIS.findall(text)}
    dims = itertools.islice(_DIM.finditer(text, text.index(", [")), rank)
    return told_by(tuple(_shardy_dim(match.group(1), mesh) for match in dims), sizes, mesh)


def told_by(dims: Dims, sizes: Mapping[str, int], mesh: Mesh) -> Constraint:
    """What `dims` over a mesh of axes of these `sizes` say on `mesh`: an axis of one device there is no axis here."""
    nothing = {axis for axis, size in sizes.items() if size == 1 and axis not in mesh.axis_names}
    kept = tuple(axes and tuple(axis for axis in axes if axis not in nothing) for axes in dims)
    return Constraint(kept, frozenset(axis for axis, size in sizes.items() if size > 1))


def _shardy_dim(text: str, mesh: Mesh) -> tuple[str, ...] | None:
    axes: list[str] = []
    for name, part in _NAME.findall(text):
        axis = _axis_name(name)
        if part:
            raise MeshError(f'it is over a part of axis "{axis}"', why=f"the mesh is {mesh}, of whole axes")
        axes.append(axis)
    return None if not axes and "?" in text else tuple(axes)


def _axis_name(text: str) -> str:
    return unescaped(text.encode()).decode("utf-8", "backslashreplace")


def _gspmd(text: str, mesh: Mesh, rank: int) -> Dims:
    """The axes whose tiles are on the devices that the constraint names, in row-major order of the mesh."""
    opened = _OPEN.search(text)
    left_open = {int(n) for n in opened.group(1).split(",")} if opened else set[int]()
    if text.startswith("{replicated}"):
        return tuple(None if d in left_open else () for d in range(rank))
    match = _TILES.match(text)
    assert match is not None
    shape = _numbers(match.group(1))
    devices = _devices(match, shape)
    grid = np.arange(mesh.size).reshape(mesh.axis_sizes)
    if devices.size == mesh.size:
        for dims in _choices(shape[:rank], mesh):
            used = [axis for dim in dims for axis in dim]
            order = [mesh.index(a) for a in used] + [i for i, a in enumerate(mesh.axis_names) if a not in used]
            if np.array_equal(_holders(grid.transpose(order), shape[:rank]), _holders(devices, shape[:rank])):
                return tuple(None if d in left_open else axes for d, axes in enumerate(dims))
    raise MeshError(f"it is {text[:80]}", why=f"no axes of the mesh {mesh} tile over devices like that")


def _numbers(text: str) -> list[int]:
    return [int(n) for n in text.split(",")]


def _devices(match: re.Match[str], shape: list[int]) -> np.ndarray:
    """int[shape]: the devices by tile, from a list of them or from a transposed range."""
    if match.group(4):
        return np.array(_numbers(match.group(4))).reshape(shape)
    sizes = _numbers(match.group(2))
    order = _numbers(match.group(3)) if match.group(3) else list(range(len(sizes)))
    return np.arange(math.prod(sizes)).reshape(sizes).transpose(order).reshape(shape)


def _holders(devices: np.ndarray, tiles: list[int]) -> np.ndarray:
    """int[tiles, copies]: the devices that hold each tile, in order."""
    return np.sort(devices.reshape(math.prod(tiles), -1))


def _choices(tiles: list[int], mesh: Mesh) -> Iterator[tuple[tuple[str, ...], ...]]:
    """Every way to give each dim axes of the mesh whose sizes multiply to its number of tiles."""
    names = [name for name, size in mesh.shape.items() if size > 1]

    def choose(dim: int, left: list[str]) -> Iterator[tuple[tuple[str, ...], ...]]:
        if dim == len(tiles):
            yield ()
            return
        for count in range(len(left) + 1):
            for axes in itertools.permutations(left, count):
                if math.prod(mesh.shape[a] for a in axes) == tiles[dim]:
                    for rest in choose(dim + 1, [a for a in left if a not in axes]):
                        yield (axes, *rest)

    return choose(0, names)
