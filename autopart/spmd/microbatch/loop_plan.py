"""Which ops of a program run in a loop over microbatches, which before it and which after it.

    x = argument            tiled on the batch            sliced in the loop
    h = dot x, w            loop [#tile<0>]               in the loop
    n = norm w              no loop                       before it, as the loop reads it
    g = dot h', dy          loop [#sum]                   in the loop; an accumulator leaves it
    w' = add w, g           no loop                       after it

A *unit* is an op of the program's own scope, or a whole loop or case of its. A unit is looped if propagation along the
temporal axis gave a mapping to an op of it. Inside a looped unit, sums over the batch may stay pending as far as ops
pass them on (a scan that stacks each layer's gradient); a unit in which one cannot be passed on runs whole.

Sums that leave a loop for nothing but to be added to each other share an accumulator: the two gradients of an embedding
that also makes the logits.

Where a looped unit needs what an earlier one leaves in another way than as its own microbatch (a mean over the batch),
it must wait for a second loop. Every unit runs in the last loop, or before the last loop, that does for those who read
it, so that as little as possible is kept from one loop to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from autopart.core.control_flow import statements
from autopart.core.op import REDUCTION_NAMES, SUM, WHOLE, TileMapping
from autopart.core.ops.passages import Passage
from autopart.core.ops.rule import passages_of, traits_of
from autopart.core.ops.traits import Convolution, Matmul, Opaque, Structural
from autopart.core.program import Program
from autopart.core.table.partitioning import Partitioning

AXIS = "microbatch"
"""The temporal axis: one that is no mesh axis."""

CHEAP = 8
"""What is made before the loop takes at most so many times the bytes of the inputs that it is made of."""


@dataclass(frozen=True)
class Read:
    """A use by which a unit reads a value from outside; `dim` is what the reading op slices, or `WHOLE`."""

    value: int
    dim: int
    op: int


@dataclass(frozen=True)
class Unit:
    """Ops `[start, end)` that run together. `unsound` is the op inside for which it cannot be looped, or -1."""

    start: int
    end: int
    looped: bool
    reads: tuple[Read, ...]
    unsound: int = -1


@dataclass(frozen=True)
class Middle:
    """An op that reads what a loop leaves for the whole batch, and on which a later loop depends."""

    op: int
    value: int


@dataclass(frozen=True)
class LoopPlan:
    """Where everything runs.

    units         in program order, arguments left out
    place[i]      unit i runs in loop `place[i]` if it is looped, else before that loop; `loops`: after the last
    loops         how many loops there are
    parts[v]      the reduction by which value v is combined over microbatches where it is made in a loop
    passage[op]   how what is pending passes through an op of a looped unit that has no mapping
    leaving[l]    the values that loop l leaves for others
    joined[v]     the two sums that v adds, or the one that it transposes, where v leaves the loop in place of them
    middles       where one loop does not do, the ops for which it does not, in program order
    hoisted       sums over the whole batch that are made before the loops, since they need no activations
    """

    partitioning: Partitioning
    units: tuple[Unit, ...]
    place: tuple[int, ...]
    loops: int
    parts: dict[int, int]
    passage: dict[int, Passage]
    leaving: tuple[tuple[int, ...], ...]
    joined: dict[int, tuple[int, ...]]
    middles: tuple[Middle, ...]
    hoisted: tuple[int, ...] = ()

    def tiled(self, value: int) -> int:
        """The dim on which a value is tiled where it is made in a loop, or `WHOLE`."""
        return self.partitioning.tiled_dim(value, AXIS)

    def mapping(self, op: int) -> TileMapping | None:
        """The op's mapping over microbatches."""
        return mapping_of(self.partitioning, op)


def mapping_of(partitioning: Partitioning, op: int) -> TileMapping | None:
    """The mapping of an op's loop over the temporal axis, or None."""
    number = int(partitioning.state.mapping[op, 0])
    return partitioning.table.of[partitioning.program.op_spec[op]][number] if number >= 0 else None


def plan_loops(partitioning: Partitioning) -> LoopPlan:
    """The plan for a program whose only axis is the temporal one, as propagation left it.

    Where a loop would have to wait for a sum over the batch that few and cheap ops make of the inputs alone (how many
    tokens a mask leaves), these run before it, on the whole batch.
    """
    whole, hoisted = frozenset[int](), list[int]()
    plan = _plan(partitioning, whole)
    while plan.middles:
        found = [(middle.value, cone) for middle in plan.middles if (cone := _of_inputs(partitioning, middle.value))]
        more = whole.union(*(cone for _, cone in found))
        if more == whole:
            break
        whole, hoisted = more, [*hoisted, *(value for value, _ in found)]
        plan = _plan(partitioning, whole)
    return replace(plan, hoisted=tuple(dict.fromkeys(hoisted)))


def _of_inputs(partitioning: Partitioning, value: int) -> frozenset[int]:
    """The ops that make a value of arguments that are cut and of constants, if they are cheap; else none."""
    program = partitioning.program
    ops, waiting, read, made = set[int](), [value], 0.0, 0.0
    while waiting:
        v = waiting.pop()
        op, size = int(program.value_op[v]), program.type_of(v).bytes
        if op in ops:
            continue
        ops.add(op)
        if v in program.argument_place:
            if partitioning.tiled_dim(v, AXIS) == WHOLE and program.type_of(v).shape:
                return frozenset()
            read += size
        elif program.op_scope[op] or isinstance(
            traits_of(program.spec(op)), Structural | Matmul | Convolution | Opaque
        ):
            return frozenset()
        else:
            made += size
            waiting += program.operands_of(op).tolist()
    return frozenset(op for op in ops if made <= CHEAP * read)


def _plan(partitioning: Partitioning, whole: frozenset[int]) -> LoopPlan:
    """The plan in which the ops `whole` are in no loop."""
    program = partitioning.program
    parts: dict[int, int] = {}
    passage: dict[int, Passage] = {}
    units = tuple(_unit(partitioning, start, end, parts, passage, whole) for start, end in _spans(program))
    unit_of = {op: number for number, unit in enumerate(units) for op in range(unit.start, unit.end)}
    makers = [[unit_of.get(int(program.value_op[r.value]), -1) for r in unit.reads] for unit in units]

    def is_local(reader: Unit, read: Read, maker: int) -> bool:
        """The read is satisfied by the microbatch that the maker leaves in the same loop."""
        if not (reader.looped and units[maker].looped) or read.value in parts:
            return False
        made = partitioning.tiled_dim(read.value, AXIS)
        return made in (read.dim, WHOLE)

    earliest = _earliest(units, makers, is_local)
    loops = max((e + 1 for e, unit in zip(earliest, units, strict=True) if unit.looped), default=0)
    place = _latest(units, makers, is_local, loops)
    leaving: list[dict[int, None]] = [{} for _ in range(loops)]
    middles: list[Middle] = []
    for number, unit in enumerate(units):
        for read, maker in zip(unit.reads, makers[number], strict=True):
            same_loop = maker >= 0 and is_local(unit, read, maker) and place[maker] == place[number]
            if maker >= 0 and units[maker].looped and not same_loop:
                leaving[place[maker]][read.value] = None
                if place[number] < loops and not is_local(unit, read, maker):
                    middles.append(Middle(read.op, read.value))
    for value in program.outputs:
        maker = unit_of.get(int(program.value_op[value]), -1)
        if maker >= 0 and units[maker].looped:
            leaving[place[maker]][value] = None
    joined = _join_sums(program, units, parts, leaving)
    return LoopPlan(
        partitioning, units, place, loops, parts, passage, tuple(map(tuple, leaving)), joined, tuple(middles)
    )


def _join_sums(
    program: Program, units: Sequence[Unit], parts: dict[int, int], leaving: Sequence[dict[int, None]]
) -> dict[int, tuple[int, ...]]:
    """Lets adds of two sums leave a loop in place of these, where nothing else reads them: value -> what it is made of.

    A sum may be transposed first, as the gradient of a matrix is; then it is transposed in the loop.
    """
    pointer, _ = program.users
    outputs, joined = set(program.outputs), dict[int, tuple[int, ...]]()
    after = {unit.start for unit in units if not unit.looped}

    def is_read_once(value: int) -> bool:
        return value not in outputs and int(pointer[value + 1] - pointer[value]) == 1

    def before_transposes(value: int) -> list[int]:
        """The value, what it transposes, and so on."""
        op = int(program.value_op[value])
        if op not in after or program.spec(op).kind != "transpose":
            return [value]
        return [value, *before_transposes(int(program.operands_of(op)[0]))]

    for start in sorted(after):
        if program.spec(start).kind != "add":
            continue
        added = program.operands_of(start).tolist()
        chains = [before_transposes(value) for value in added]
        sums = [chain[-1] for chain in chains]
        left = next((of for of in leaving if all(value in of for value in sums)), None)
        if left is None or not all(is_read_once(value) for chain in chains for value in chain):
            continue
        if any(parts.get(v) != SUM and (v not in joined or len(c) > 1) for v, c in zip(sums, chains, strict=True)):
            continue
        for chain in chains:
            joined.update((value, (of,)) for value, of in pairwise(chain))
            del left[chain[-1]]
        result = program.results_of(start)[0]
        joined[result], left[result] = tuple(added), None
    return joined


def _spans(program: Program) -> Iterator[tuple[int, int]]:
    """[start, end) of each unit, in program order."""
    for statement in statements(program, len(program.arguments), program.op_count):
        yield (statement, statement + 1) if isinstance(statement, int) else (statement.op, statement.end)


IsLocal = Callable[[Unit, Read, int], bool]
"""Whether a unit reads what another unit, by its number, leaves for the same turn of the same loop."""


def _earliest(units: Sequence[Unit], makers: Sequence[Sequence[int]], is_local: IsLocal) -> list[int]:
    """The first loop in which, or before which, each unit can run."""
    earliest: list[int] = []
    for unit, made_by in zip(units, makers, strict=True):
        after = [0]
        for read, maker in zip(unit.reads, made_by, strict=True):
            if maker >= 0:
                waits = units[maker].looped and not is_local(unit, read, maker)
                after.append(earliest[maker] + waits)
        earliest.append(max(after))
    return earliest


def _latest(units: Sequence[Unit], makers: Sequence[Sequence[int]], is_local: IsLocal, loops: int) -> tuple[int, ...]:
    """The last loop in which, or before which, each unit can run."""
    latest = [loops - 1 if unit.looped else loops for unit in units]
    for number in reversed(range(len(units))):
        for read, maker in zip(units[number].reads, makers[number], strict=True):
            if maker >= 0:
                waits = units[maker].looped and not is_local(units[number], read, maker)
                latest[maker] = min(latest[maker], latest[number] - waits)
    return tuple(latest)


# ---- one unit


def _unit(
    partitioning: Partitioning,
    start: int,
    end: int,
    parts: dict[int, int],
    passage: dict[int, Passage],
    whole: frozenset[int],
) -> Unit:
    """The unit of ops `[start, end)`; what is pending in it is added to `parts` and `passage` if it is looped."""
    program, state = partitioning.program, partitioning.state
    inside = range(int(program.result_ptr[start]), int(program.result_ptr[end]))
    looped, unsound = bool((state.mapping[start:end, 0] >= 0).any()) and start not in whole, -1
    if looped:
        own_parts: dict[int, int] = {}
        own_passage: dict[int, Passage] = {}
        unsound = _pending(partitioning, range(start, end), inside, own_parts, own_passage)
        looped = unsound < 0
        if looped:
            parts.update(own_parts)
            passage.update(own_passage)
    reads = []
    for op in range(start, end):
        mapping = mapping_of(partitioning, op) if looped else None
        for k, value in enumerate(program.operands_of(op).tolist()):
            if value not in inside:
                reads.append(Read(value, WHOLE if mapping is None else mapping.operands[k], op))
    return Unit(start, end, looped, tuple(reads), unsound)


def _pending(
    partitioning: Partitioning, ops: range, inside: range, parts: dict[int, int], passage: dict[int, Passage]
) -> int:
    """Finds what is pending in a unit, to a fixed point; returns an op that cannot go on with what it reads, or -1."""
    while True:
        before = len(parts)
        for op in ops:
            if not _passes(partitioning, op, inside, parts, passage):
                return op
        if len(parts) == before:
            return -1


def _passes(
    partitioning: Partitioning, op: int, inside: range, parts: dict[int, int], passage: dict[int, Passage]
) -> bool:
    """Notes what is pending after `op`; False if it needs the whole batch of a value of its own unit."""
    program, mapping = partitioning.program, mapping_of(partitioning, op)
    operands = program.operands_of(op).tolist()
    codes = [parts.get(v, 0) if v in inside else 0 for v in operands]
    if mapping is not None:
        for value, code, dim in zip(operands, codes, mapping.operands, strict=True):
            made = partitioning.tiled_dim(value, AXIS) if value in inside else WHOLE
            if code or made not in (dim, WHOLE):
                return False
        for value, entry in zip(program.results_of(op), mapping.results, strict=True):
            if entry in REDUCTION_NAMES:
                parts[value] = entry
        return True
    if any(v in inside and partitioning.tiled_dim(v, AXIS) != WHOLE for v in operands):
        return False
    if not any(codes):
        return True
    for way in passages_of(program.spec(op)):
        if all(code in (0, way.code) and (part or not code) for code, part in zip(codes, way.parts, strict=True)):
            passage[op] = way
            parts.update(dict.fromkeys(program.results_of(op), way.code))
            return True
    return False
