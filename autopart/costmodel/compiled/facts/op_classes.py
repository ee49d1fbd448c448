"""What a program's ops cost and how the compiler may fuse them, as arrays for the kernels: one row per distinct op.

    class        its traits say            the simulator
    free         Structural, Constant,     runs nothing
                 View
    elementwise  Elementwise               weight x result elements; may be computed inside a consumer
    slicing      Slicing                   reads what is kept
    reduce       Reduction                 weight x operand elements
    matmul       Matmul                    flop of the matrix unit
    conv         Convolution               flop of the matrix unit
    update       Update                    weight x update elements, in place
    opaque       Opaque, Collective,       weight x operand elements, or flop of the matrix unit
                 Matmul of its own

What an op is stands beside its rule (`core/ops/traits.py`); no kind of op is named here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import NamedTuple, TypeGuard

import numpy as np

from autopart.base.registry import RegistryError
from autopart.core.kernel_calls.call_config import config_of, filled
from autopart.core.op import OpSpec
from autopart.core.ops.rule import describe, mappings_of, named, traits_of
from autopart.core.ops.traits import (
    GPU_CYCLES,
    Collective,
    Constant,
    Convolution,
    Elementwise,
    Matmul,
    Opaque,
    Reduction,
    Sides,
    Slicing,
    Structural,
    Traits,
    Update,
    View,
    Work,
    largest,
    work,
)
from autopart.core.program import Program
from autopart.costmodel.compiled.dot_strength_reduction import is_summed
from autopart.costmodel.compiled.facts.swapped_windows import spreads_less, swapped_work
from autopart.costmodel.hardware.devices import DTYPE_CLASSES, Device, dtype_class

CLASS_NAMES = ("free", "elementwise", "slicing", "reduction", "matmul", "conv", "update", "opaque")
FREE, ELEMENTWISE, SLICING, REDUCE, MATMUL, CONV, UPDATE, OPAQUE = range(len(CLASS_NAMES))

_CLASSES: dict[type[Traits], int] = {
    Structural: FREE,
    Constant: FREE,
    View: FREE,
    Elementwise: ELEMENTWISE,
    Slicing: SLICING,
    Reduction: REDUCE,
    Matmul: MATMUL,
    Convolution: CONV,
    Update: UPDATE,
    Opaque: OPAQUE,
    Collective: OPAQUE,
}

EXPENSIVE = 2
"""Elementwise ops of at least this weight are expensive: the compiler is reluctant to compute them twice."""


SELECTED = Elementwise(weight=3)
"""An update of one element in each row, compiled as a select: compare the place, add the element, take one of two."""


SUMMED = Reduction(flop=lambda spec: 2 * largest(spec.operands))
"""A product of one row with a matrix for each place of a batch, the query of a token with its cache: a multiplication
and a sum of the vector unit, not the matrix unit. libtpu 0.0.51 on v5e makes that of attention while decoding."""


MULTIPLIED = Elementwise(weight=1)
"""A product that sums over one element: a multiplication inside whatever reads it, as the gradient of one output."""


class SpecCosts(NamedTuple):
    """Per distinct op; flop and elements are of the whole, unpartitioned op.

    op_class, matrix_dtype   see the module; the dtype class is the first operand's
    matrix_flop       flop of the matrix unit
    weight            vector operations per element: of the result, of the update, or of the largest operand
    cycles            clock cycles per element of an elementwise op, as XLA:GPU's fusion counts them
    is_view           the result is the operand's memory
    is_constant       made inside its consumers
    fuses             may be computed inside a consumer
    takes             computes fusible operands inside itself (a look-up: its indices at least); a view: its readers do
    passes            how often the matrix unit runs through an f32 product; times `Sides.walked`, or `in_padding`
    narrows           reads f32 as bf16
    turns             moves another dim into the minor place
    spreads           makes a row along the minor dim of each number
    transforms        how often the numbers of an opaque op are copied, which is made of products; -1 for others
    read_share        share of its operands that an opaque op reads
    repeats           bits by mapping number: a loop over that mapping divides no flop of the matrix unit
    summed, columns, rows, taps, images   `Sides` of a product: bits by dim of its left operand, and of its result; of
                      columns those that lie side by side
    apart             into how many places holes spread one place of a convolution's images (`Sides`)
    inner_last        what is summed over is the last dim of the right operand of a convolution
    batches           dims along which there are separate products
    behind            bits of the operands whose such dims do not come first
    inner_groups, column_groups, image_groups   its groups, where it is a convolution
    """

    op_class: np.ndarray
    matrix_dtype: np.ndarray
    matrix_flop: np.ndarray
    weight: np.ndarray
    cycles: np.ndarray
    is_view: np.ndarray
    is_constant: np.ndarray
    fuses: np.ndarray
    takes: np.ndarray
    passes: np.ndarray
    narrows: np.ndarray
    turns: np.ndarray
    spreads: np.ndarray
    transforms: np.ndarray
    read_share: np.ndarray
    repeats: np.ndarray
    summed: np.ndarray
    columns: np.ndarray
    rows: np.ndarray
    taps: np.ndarray
    images: np.ndarray
    apart: np.ndarray
    inner_last: np.ndarray
    batches: np.ndarray
    behind: np.ndarray
    inner_groups: np.ndarray
    column_groups: np.ndarray
    image_groups: np.ndarray


def spec_costs(program: Program, chip: Device) -> SpecCosts:
    """Costs of every spec of `program` as the device's compiler makes them.

    Raises `RegistryError` for an op that is said to read more than it is given.
    """
    specs, writes = program.specs, chip.is_xla_tpu
    traits = [_compiled_as(traits_of(s), s, writes) for s in specs]
    views = [_is_view(t, s) for t, s in zip(traits, specs, strict=True)]
    classes = [FREE if view else _CLASSES[type(t)] for view, t in zip(views, traits, strict=True)]
    works = [_at_its_rate(_work(*row), row[-1], chip) for row in zip(views, traits, specs, strict=True)]
    f32_matmul = [c in (MATMUL, CONV) and s.operands[0].dtype == "f32" for c, s in zip(classes, specs, strict=True)]
    brought = [config_of(s) is not None for s in specs]
    passes = [_passes(s) if f32 or _alone(traits_of(s)) else 1.0 for f32, s in zip(f32_matmul, specs, strict=True)]
    by_kernel = [chip.kernel_passes * filled(s, chip.matmul_tile) for s in specs]
    passes = [n if kernel else other for kernel, n, other in zip(brought, by_kernel, passes, strict=True)]
    sides = [_sides(t, s) for t, s in zip(traits, specs, strict=True)]
    swaps = [writes and spreads_less(s, side) for s, side in zip(specs, sides, strict=True)]
    groups = np.array([side.groups for side in sides], np.int64).reshape(-1, 3)
    return SpecCosts(
        op_class=np.array(classes, np.int8),
        matrix_dtype=np.array([_dtype(s) for s in specs], np.int8),
        matrix_flop=np.array([w.matrix_flop if w else 0.0 for w in works], float),
        weight=np.array([_weight(c, w, s) for c, w, s in zip(classes, works, specs, strict=True)], float),
        cycles=np.array([_cycles(t) for t in traits], float),
        is_view=np.array(views, np.bool_),
        is_constant=np.array([isinstance(t, Constant) for t in traits], np.bool_),
        fuses=np.array([_fuses(*row, chip.is_xla_gpu) for row in zip(traits, specs, strict=True)], np.bool_),
        takes=np.array([_takes(*row, writes) for row in zip(views, classes, traits, specs, strict=True)], np.bool_),
        passes=np.array(passes)
        * [_walked(s, side, swap, chip) for s, side, swap in zip(specs, sides, swaps, strict=True)],
        narrows=np.array([f32 and n == 1 for f32, n in zip(f32_matmul, passes, strict=True)], np.bool_)
        & chip.around_matmul.narrows_operands,
        turns=np.array([_turns(t, s) for t, s in zip(traits, specs, strict=True)], np.bool_),
        spreads=np.array([_spreads(t, s) for t, s in zip(traits, specs, strict=True)], np.bool_),
        transforms=np.array([_transforms(t, s) if writes else -1.0 for t, s in zip(traits, specs, strict=True)], float),
        read_share=np.array([_read_share(t, s) for t, s in zip(traits, specs, strict=True)], float),
        repeats=np.array([_repeats(traits_of(s), s) for s in specs], np.int64),
        summed=np.array([_bits(side.summed) for side in sides], np.int64),
        columns=np.array([_columns(*row, chip) for row in zip(sides, specs, strict=True)], np.int64),
        rows=np.array([_bits(side.rows) for side in sides], np.int64),
        taps=np.array([side.taps for side in sides], np.int64),
        images=np.array([_bits(side.images) for side in sides], np.int64),
        apart=np.array([side.apart for side in sides], np.int64),
        inner_last=np.array([side.inner_last for side in sides], np.bool_),
        batches=np.array([len(side.batch) for side in sides], np.int64),
        behind=np.array([_bits(side.behind) for side in sides], np.int8),
        inner_groups=groups[:, 0],
        column_groups=groups[:, 1],
        image_groups=groups[:, 2],
    )


def _compiled_as(traits: Traits, spec: OpSpec, is_xla_tpu: bool) -> Traits:
    """The traits of what the compiler makes of an op."""
    if _alone(traits):
        return Opaque(flop=traits.flop, matrix=True)
    if is_xla_tpu and isinstance(traits, Update) and traits.one_per_row(spec):
        return SELECTED
    if is_xla_tpu and isinstance(traits, Convolution) and (flop := traits.on_vector(spec)) is not None:
        return replace(traits, flop=lambda _: flop, matrix=False)
    if is_xla_tpu and isinstance(traits, Opaque) and traits.by_products is not None:
        flop = traits.by_products(spec).flop
        return replace(traits, flop=lambda _: flop, matrix=True)
    if not is_xla_tpu or not isinstance(traits, Matmul):
        return traits
    if traits.flop(spec) == 2 * largest(spec.results):
        return MULTIPLIED
    return SUMMED if is_summed(spec) else traits


def _transforms(traits: Traits, spec: OpSpec) -> float:
    if isinstance(traits, Opaque) and traits.by_products is not None:
        return traits.by_products(spec).copies
    return -1.0


def op_class(spec: OpSpec) -> int:
    """Class of an op; ops without a rule are opaque."""
    traits = traits_of(spec)
    return FREE if _is_view(traits, spec) else _CLASSES[type(traits)]


def op_work(spec: OpSpec) -> Work | None:
    """Flop of the whole op as the simulator counts them, one device doing all; None if nobody knows them."""
    traits = traits_of(spec)
    return _work(_is_view(traits, spec), traits, spec)


def _work(is_view: bool, traits: Traits, spec: OpSpec) -> Work | None:
    return Work(0.0, 0.0) if is_view else work(traits, spec)


def _at_its_rate(found: Work | None, spec: OpSpec, chip: Device) -> Work | None:
    """The work of an op; of a kernel of which the device has a rate, without the vector unit's, which is in that."""
    has_rate = chip.kernel_efficiency is not None and config_of(spec) is not None
    return found._replace(vector_flop=0.0) if found and found.matrix_flop and has_rate else found


def unknown_ops(program: Program) -> tuple[str, ...]:
    """Ops of unknown flop, most frequent first: their kind, and how often a step runs them ("custom_call @f (3 x)")."""
    unknown = {i: named(s) for i, s in enumerate(program.specs) if op_work(s) is None}
    trips, counts = program.scope_trips[program.op_scope], Counter[str]()
    for op in np.flatnonzero(np.isin(program.op_spec, list(unknown))):
        counts[unknown[int(program.op_spec[op])]] += int(trips[op])
    return tuple(f"{kind} ({n} x)" for kind, n in counts.most_common())


def matrix_flop(spec: OpSpec) -> float:
    """Flop of the matrix unit: two per multiply-add; 0 where nobody knows."""
    found = op_work(spec)
    return 0.0 if found is None else found.matrix_flop


def is_matrix_op(spec: OpSpec) -> bool:
    """True for matrix products, convolutions, and kernels that run on the matrix unit."""
    return op_class(spec) in (MATMUL, CONV) or matrix_flop(spec) > 0


def looks_up(spec: OpSpec) -> bool:
    """True for ops that read rows of a table at an array of indices."""
    traits = traits_of(spec)
    return isinstance(traits, Slicing) and traits.indexed


def _weight(found: int, flop: Work | None, spec: OpSpec) -> float:
    """Vector flop per element of what the op walks through: the largest of its updates, operands, or result."""
    if flop is None or flop.vector_flop == 0:
        return 0.0
    walked = {ELEMENTWISE: spec.results[:1], UPDATE: spec.operands[1:]}.get(found, spec.operands)
    return flop.vector_flop / max(1.0, largest(walked))


def _cycles(traits: Traits) -> float:
    if not isinstance(traits, Elementwise):
        return 0.0
    return GPU_CYCLES * traits.weight if traits.cycles is None else traits.cycles


def _fuses(traits: Traits, spec: OpSpec, on_gpu: bool) -> bool:
    """Elementwise ops, slices and constants; on GPUs look-ups too, which each thread does for itself there. Elsewhere
    they would keep a whole table alive for a late consumer; one in each row is a slice where a device has one row."""
    match traits:
        case Slicing():
            return on_gpu or not traits.indexed or traits.one_per_row(spec)
        case _:
            return isinstance(traits, Elementwise | Constant)


def _takes(is_view: bool, op_class: int, traits: Traits, spec: OpSpec, reads_arrays: bool) -> bool:
    """`SpecCosts.takes`; `reads_arrays`: what rows are looked up in, or pools slide over, has been written."""
    if is_view:
        return not (isinstance(traits, View) and traits.fence)
    if reads_arrays and (looks_up(spec) or (isinstance(traits, Reduction) and traits.slides)):
        return False
    return op_class in (ELEMENTWISE, SLICING, REDUCE, MATMUL, CONV, UPDATE)


def _is_view(traits: Traits, spec: OpSpec) -> bool:
    """True for views, reductions over nothing but dims of size one, collectives over groups of one."""
    if isinstance(traits, Reduction) and traits.flop is None:
        return len(spec.results) == 1 and spec.operands[0].bytes == spec.results[0].bytes
    return isinstance(traits, View) or (isinstance(traits, Collective) and not traits.communicates(spec))


def _turns(traits: Traits, spec: OpSpec) -> bool:
    return isinstance(traits, Elementwise) and traits.turns is not None and traits.turns(spec)


def _spreads(traits: Traits, spec: OpSpec) -> bool:
    return isinstance(traits, Elementwise) and traits.spreads is not None and traits.spreads(spec)


def _alone(traits: Traits) -> TypeGuard[Matmul]:
    return isinstance(traits, Matmul) and traits.alone


def _passes(spec: OpSpec) -> float:
    """How often products of f32 pass through the matrix unit, as their precision asks; one of narrower types once."""
    if spec.operands[0].dtype != "f32":
        return 1.0
    asked = spec.attributes.get("precision_config") or ("DEFAULT",)
    return max({"HIGH": 3.0, "HIGHEST": 6.0}.get(str(a), 1.0) for a in asked)


def _read_share(traits: Traits, spec: OpSpec) -> float:
    given = sum(t.bytes for t in spec.operands)
    if not isinstance(traits, Opaque) or traits.read_bytes is None or given == 0:
        return 1.0
    read = traits.read_bytes(spec)
    if not 0 <= read <= given:
        raise RegistryError(
            f"the traits of {describe(spec)} say that it reads {read:.6g} bytes",
            why=f"its operands have {given:.6g} bytes; what a kernel reads twice is counted once",
            hint=f"read_bytes from 0 to {given:.6g}",
        )
    return read / given


def _repeats(traits: Traits, spec: OpSpec) -> int:
    if not isinstance(traits, Matmul) or traits.repeats is None:
        return 0
    return sum(1 << i for i, mapping in enumerate(mappings_of(spec) or ()) if traits.repeats(spec, mapping))


def _sides(traits: Traits, spec: OpSpec) -> Sides:
    return traits.sides(spec) if isinstance(traits, (Matmul, Convolution)) and traits.sides is not None else Sides()


def _walked(spec: OpSpec, side: Sides, swaps: bool, chip: Device) -> float:
    if swaps:
        return swapped_work(spec)
    walked = side.walked if chip.library is None else side.in_padding
    return walked * (chip.window_share if side.taps == 0 else 1.0)


def _bits(dims: tuple[int, ...]) -> int:
    return sum(1 << d for d in dims)


def _dtype(spec: OpSpec) -> int:
    """Of the first operand; of a kernel that a program brings, which may read masks first, of the largest one."""
    types = spec.operands or spec.results
    if types and config_of(spec) is not None:
        types = (max(types, key=lambda t: t.bytes),)
    return DTYPE_CLASSES.index(dtype_class(types[0].dtype)) if types else DTYPE_CLASSES.index("f32")


def _columns(sides: Sides, spec: OpSpec, chip: Device) -> int:
    """Bits of the columns that lie side by side in a tile: all of them, or the longest alone."""
    if chip.columns_together or not sides.columns:
        return _bits(sides.columns)
    return 1 << max(sides.columns, key=lambda d: spec.results[0].shape[d])
