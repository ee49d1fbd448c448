"""The loop nest of a training step: microbatches around a forward loop over layers and its transpose.

    for each microbatch                              place
      x = rows of the batch                          anew wherever it is read
      h = table[x]                                   before
      forward loop: h, H = layers(W, h)              h enters the first stage, and leaves the last
      loss, dh = head(h, y)                          between
      backward loop: dh, dW = layers'(W, H, dh)      dh returns to the last stage, and is gone from the first
      dE = scatter(x, dh)                            after
      sums of loss, dW, dE

What depends on no microbatch is made once, before all. What reads rows of the batch and computes little is made in each
place that reads it; what costs more, and all that forward or backward loops leave, is kept from place to place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from autopart.core.control_flow import Branches, Carry, Loop, loop_of, statements
from autopart.core.errors import BlockedError
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Constant, Elementwise, Slicing, View
from autopart.core.passes.recompute.turns import Turns
from autopart.core.program import ROOT, Program
from autopart.spmd.pipeline.layer_loops import LayerLoop, blocked, layer_loop, users_of

BEFORE, ENTER, LEAVE, BETWEEN = "before", "enter", "leave", "between"
RETURN, GONE, AFTER = "return", "gone", "after"
"""Places of a microbatch, in order: around the layers, and at the first and last stage on its way there and back."""

PLACES = (BEFORE, ENTER, LEAVE, BETWEEN, RETURN, GONE, AFTER)
"""All of them."""

AROUND = (BEFORE, BETWEEN, AFTER)
"""The places that compute; at the others something is handed over."""

_ROWS, _ONCE, _MADE = "rows", "once", "made"
"""Places of what any of those may make: of rows of the batch, of no microbatch, of nothing at all."""


@dataclass(frozen=True)
class Sum:
    """A carry to which each microbatch adds `terms`; `per_layer`: they are rows of stacks of the backward loop."""

    carry: Carry
    terms: tuple[int, ...]
    per_layer: bool


@dataclass(frozen=True)
class Written:
    """A carry in which each microbatch writes its own part, by the dynamic_update_slice `op`."""

    carry: Carry
    op: int


@dataclass(frozen=True)
class Kept:
    """A value that waits for a later place: made in `home`, read in `readers`."""

    home: str
    readers: frozenset[str]


@dataclass
class Nest:
    """A nest by what stands where.

    once        statements that run before all, in order
    made        place -> the statements that run there, in order
    kept        value -> from where to where it waits
    travelling  what layers read of their microbatch: forward, and backward
    per_layer   ops that change stacks of gradients before they are added up
    """

    program: Program
    step: Loop
    counter: Carry
    forward: LayerLoop
    backward: LayerLoop
    sums: tuple[Sum, ...] = ()
    written: tuple[Written, ...] = ()
    once: list[int] = field(default_factory=list[int])
    made: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    kept: dict[int, Kept] = field(default_factory=dict[int, Kept])
    travelling: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    per_layer: tuple[int, ...] = ()
    home_of: dict[int, str] = field(default_factory=dict[int, str])

    @property
    def microbatches(self) -> int:
        """How many there are."""
        return self.step.body.scope.trips

    @property
    def layers(self) -> int:
        """How many each of them goes through."""
        return self.forward.layers


def find_nest(program: Program) -> Nest:
    """The nest with most bytes in the rows that its layers read.

    Raises `BlockedError` where there is none, or why it cannot be staged.
    """
    found = [nest for op in _whiles(program) for nest in _nests(program, loop_of(program, op))]
    if not found:
        raise _without_nest(program)
    nest = max(found, key=lambda n: sum(program.type_of(v).bytes for v in n.forward.row_reads.values()))
    return _Placing(nest).nest


def _without_nest(program: Program) -> BlockedError:
    """What of a nest a program lacks."""
    loops = [loop_of(program, op) for op in _whiles(program)]
    roles = [r for loop in loops for way in (False, True) if (r := layer_loop(program, loop, way)) and r.row_reads]
    if not roles:
        return BlockedError(
            "the program has no loop over layers",
            why="stages are runs of equal layers, in a scan that takes a row of each stacked parameter in each turn",
            hint="jax.lax.scan over the layers (flax: nn.scan)",
        )
    largest = max(roles, key=lambda r: sum(program.type_of(v).bytes for v in r.row_reads.values()))
    if program.op_scope[largest.loop.op] == ROOT:
        return blocked(
            program,
            largest.loop.op,
            "the loop over layers is in no loop over microbatches",
            why="stages work on different microbatches at a time",
            hint='ap.Pipeline(..., microbatches=8), or ap.Microbatch({"batch": 0}, 8) beside it',
        )
    return blocked(
        program,
        largest.loop.op,
        "no loop over the same layers, from the last to the first, reads what this one leaves",
        why="the passes of a pipeline are a scan from the first layer to the last and the one that differentiates it",
        hint="a training step, with jax.grad inside; layers that are scanned from first to last",
    )


def _whiles(program: Program) -> Iterator[int]:
    return (op for op in program.inner_scopes if program.spec(op).kind == "while")


def _nests(program: Program, step: Loop) -> Iterator[Nest]:
    scope = step.body.scope
    counter = next((c for c in step.carries if c.inside == Turns.of(program, step).counter), None)
    if counter is None or scope.trips < 2:
        return
    loops = [s for s in statements(program, scope.start, scope.end) if isinstance(s, Loop)]
    forward = [f for loop in loops if (f := layer_loop(program, loop, backward=False)) is not None and f.layers > 1]
    backward = [b for loop in loops if (b := layer_loop(program, loop, backward=True)) is not None]
    for early in forward:
        late = [b for b in backward if not early.stack_of.keys().isdisjoint(b.row_reads.values())]
        if len(late) == 1 and late[0].layers == early.layers:
            yield Nest(program, step, counter, early, late[0])


class _Placing:
    """Puts the statements of a nest in their places."""

    def __init__(self, nest: Nest):
        self._program, self._nest = nest.program, nest
        scope = nest.step.body.scope
        self._statements = {_start(s): s for s in statements(self._program, scope.start, scope.end)}
        ends = [*list(self._statements)[1:], scope.end]
        self._end = dict(zip(self._statements, ends, strict=True))
        self._of_op = {op: start for start, end in self._end.items() for op in range(start, end)}
        self._inside = {carry.inside for carry in nest.step.carries}
        self._place = dict[int, str]()
        self._sums_and_parts()
        self._classify()
        self._rows_of_microbatches()
        self._check_stacks()
        self._plan()

    @property
    def nest(self) -> Nest:
        return self._nest

    # ---- what the loop over microbatches carries

    def _sums_and_parts(self) -> None:
        nest, program = self._nest, self._program
        sums, parts = list[tuple[Carry, list[int]]](), list[Written]()
        self._adding = set[int]()
        for carry in nest.step.carries:
            if carry is nest.counter:
                self._adding.add(int(program.value_op[program.operands_of(carry.op)[1]]))
                continue
            following = int(program.operands_of(carry.op)[1])
            update = int(program.value_op[following])
            alone = len(users_of(program, carry.inside)) == 1
            terms = self._terms(carry, following) if alone else None
            if terms is not None:
                sums.append((carry, terms))
            elif alone and program.spec(update).kind == "dynamic_update_slice" and update in self._of_op:
                if int(program.operands_of(update)[0]) != carry.inside:
                    raise self._no_sum(carry, update)
                parts.append(Written(carry, update))
                self._adding.add(update)
            else:
                raise self._no_sum(carry, update)
        self._carried = sums
        self._nest = replace(nest, written=tuple(parts))

    def _terms(self, carry: Carry, value: int) -> list[int] | None:
        """What is added to a carry until `value`, or None where that is not all that happens to it."""
        if value == carry.inside:
            return []
        op = int(self._program.value_op[value])
        if self._of_op.get(op) != op or self._program.spec(op).kind != "add" or len(users_of(self._program, value)) > 1:
            return None
        left, right = self._program.operands_of(op).tolist()
        for into, term in ((left, right), (right, left)):
            found = self._terms(carry, into)
            if found is not None:
                self._adding.add(op)
                return [*found, term]
        return None

    def _no_sum(self, carry: Carry, op: int) -> BlockedError:
        type_ = self._program.type_of(carry.inside)
        return blocked(
            self._program,
            op if op in self._of_op else self._nest.step.op,
            f"{type_} is handed from microbatch to microbatch, and is no sum",
            why="several microbatches are under way at once, each in another stage",
            hint="sums over microbatches, and parts of their own, are what they may leave",
        )

    # ---- places

    def _reads(self, start: int) -> Iterator[int]:
        """What a statement reads of what stands before it, carries of the nest included."""
        program, end = self._program, self._end[start]
        first, last = int(program.result_ptr[start]), int(program.result_ptr[end])
        for value in program.operands[program.operand_ptr[start] : program.operand_ptr[end]].tolist():
            if not first <= value < last:
                yield value

    def _statement_of(self, value: int) -> int | None:
        """The statement of the body that makes a value, if one does."""
        return self._of_op.get(int(self._program.value_op[value]))

    def _classify(self) -> None:
        forward, backward = self._nest.forward.loop.op, self._nest.backward.loop.op
        rank = {_MADE: 0, _ONCE: 1, _ROWS: 2, LEAVE: 3, BETWEEN: 3, GONE: 4, AFTER: 4}
        goes_on = {LEAVE: BETWEEN, GONE: AFTER}
        for start, statement in self._statements.items():
            if start in self._adding:
                continue
            found = _MADE if self._is_made_of_nothing(start, statement) else _ONCE
            for value in self._reads(start):
                above = self._statement_of(value)
                if value in self._inside:
                    if value != self._nest.counter.inside:
                        raise self._read_of_sum(start, value)
                    place = _ROWS
                elif above is None:
                    place = _ONCE
                elif above in self._adding:
                    raise self._read_of_sum(start, value)
                else:
                    place = goes_on.get(self._place[above], self._place[above])
                found = max(found, place, key=rank.__getitem__)
            if start == forward:
                found = LEAVE
            elif start == backward:
                found = GONE
            self._place[start] = found

    def _read_of_sum(self, op: int, value: int) -> BlockedError:
        return blocked(
            self._program,
            op,
            f"{self._program.spec(op).kind} reads what the microbatches before its own have added up to",
            why=f"{self._program.type_of(value)} is complete after the last of them",
            hint="read it after the loop over microbatches",
        )

    def _is_made_of_nothing(self, start: int, statement: int | Loop | Branches) -> bool:
        if not isinstance(statement, int):
            return False
        spec, above = self._program.spec(start), [self._statement_of(v) for v in self._reads(start)]
        cheap = isinstance(traits_of(spec), Constant | Elementwise | View)
        return cheap and all(a is not None and self._place.get(a) == _MADE for a in above)

    def _rows_of_microbatches(self) -> None:
        """Rows are taken of stages' own arrays where these are the same for all microbatches; else of what travels."""
        kept = self._nest.forward.stack_of

        def is_own(value: int) -> bool:
            above = self._statement_of(value)
            return value in kept or above is None or self._place[above] in (_ONCE, _MADE)

        def settled(loop: LayerLoop) -> LayerLoop:
            rows = {op: value for op, value in loop.row_reads.items() if is_own(value)}
            others = [value for op, value in loop.row_reads.items() if op not in rows]
            return replace(loop, row_reads=rows, outside=tuple(dict.fromkeys([*loop.outside, *others])))

        self._nest = replace(self._nest, forward=settled(self._nest.forward), backward=settled(self._nest.backward))

    def _check_stacks(self) -> None:
        nest, program = self._nest, self._program
        for stack in nest.forward.stacks:
            for use in users_of(program, stack.carry.after):
                op = int(program.use_op[use])
                if nest.backward.row_reads.get(op) != stack.carry.after:
                    raise blocked(
                        program,
                        op,
                        f"{program.spec(op).kind} reads what all layers leave, {program.type_of(stack.carry.after)}",
                        why="each stage leaves its layers' part at another time",
                        hint="add it up from layer to layer in what the scan carries",
                    )
        per_layer = dict[int, None].fromkeys(s.carry.after for s in nest.backward.stacks)
        ops = list[int]()
        for start, statement in self._statements.items():
            if self._place.get(start) != AFTER:
                continue
            if any(value in per_layer for value in self._reads(start)):
                if not isinstance(statement, int) or not self._keeps_layers(start, per_layer):
                    raise blocked(
                        program,
                        start,
                        f"{program.spec(start).kind} reads one microbatch's gradients of all layers",
                        why="each stage has its layers' part at another time",
                        hint="read the sum over microbatches, after their loop",
                    )
                ops.append(start)
                per_layer.update(dict.fromkeys(program.results_of(start)))
        sums = list[Sum]()
        for carry, terms in self._carried:
            stacked = [term in per_layer for term in terms]
            if any(stacked) != all(stacked):
                raise self._no_sum(carry, int(program.value_op[program.operands_of(carry.op)[1]]))
            sums.append(Sum(carry, tuple(terms), any(stacked)))
        for part in nest.written:
            if not per_layer.keys().isdisjoint(program.operands_of(part.op).tolist()):
                raise self._no_sum(part.carry, part.op)
        self._nest = replace(nest, sums=tuple(sums), per_layer=tuple(ops))

    def _keeps_layers(self, op: int, per_layer: dict[int, None]) -> bool:
        """Whether an op makes rows of rows: elementwise, or a transpose of other dims."""
        program, spec = self._program, self._program.spec(op)
        if spec.kind == "transpose":
            return spec.attributes["permutation"][0] == 0
        of_layers = all(t.shape[:1] == (self._nest.layers,) for t in (*spec.operands, *spec.results))
        others = [self._statement_of(v) for v in program.operands_of(op).tolist() if v not in per_layer]
        known = all(above is None or self._place[above] in (_ONCE, _MADE) for above in others)
        return of_layers and known and type(traits_of(spec)) is Elementwise and spec.kind != "broadcast_in_dim"

    # ---- what each place makes

    def _plan(self) -> None:
        nest, program = self._nest, self._program
        self._made = {place: set[int]() for place in PLACES}
        self._kept = dict[int, tuple[str, set[str]]]()
        self._once = set[int]()
        roots: dict[str, list[int]] = {place: [] for place in self._made}
        home = dict[int, str]()
        for total in nest.sums:
            for term in total.terms if not total.per_layer else ():
                home[total.carry.op] = max(home.get(total.carry.op, BEFORE), self._home(term), key=AROUND.index)
            if not total.per_layer:
                roots[home[total.carry.op]] += total.terms
        for part in nest.written:
            read = program.operands_of(part.op).tolist()[1:]
            home[part.carry.op] = max((self._home(v) for v in read), key=AROUND.index)
            roots[home[part.carry.op]] += read
        for op in nest.per_layer:
            for value in program.operands_of(op).tolist():
                above = self._statement_of(value)
                if above is not None and self._place[above] != AFTER:
                    self._need(_ONCE, value)
        for loop, place in ((nest.forward, ENTER), (nest.backward, RETURN)):
            roots[place] += [int(program.operands_of(c.op)[0]) for c in loop.states]
            roots[place] += loop.outside
        for loop in (nest.forward, nest.backward):
            for value in loop.row_reads.values():
                if value not in nest.forward.stack_of:
                    self._need(_ONCE, value)
        for place in reversed(PLACES):
            for value in roots[place]:
                self._need(place, value)
        travelling = tuple(tuple(v for v in loop.outside if self._varies(v)) for loop in (nest.forward, nest.backward))
        self._nest = replace(
            nest,
            once=sorted(self._once),
            made={place: sorted(ops) for place, ops in self._made.items()},
            kept={value: Kept(made, frozenset(readers)) for value, (made, readers) in self._kept.items()},
            travelling=(travelling[0], travelling[1]),
            home_of=home,
        )

    def _varies(self, value: int) -> bool:
        above = self._statement_of(value)
        return value == self._nest.counter.inside or (above is not None and self._place[above] not in (_ONCE, _MADE))

    def _home(self, value: int) -> str:
        """The first place that has a value."""
        above = self._statement_of(value)
        place = BEFORE if above is None else self._place[above]
        place = {LEAVE: BETWEEN, GONE: AFTER}.get(place, place)
        return place if place in AROUND else BEFORE

    def _need(self, place: str, value: int) -> None:
        start = self._statement_of(value)
        if start is None:
            return
        where = self._place[start]
        if where == _ONCE or place == _ONCE:
            self._add(self._once, start, _ONCE)
        elif where in (_MADE, place) or (where == _ROWS and (place == BEFORE or self._is_cheap(start))):
            self._add(self._made[place], start, place)
        else:
            home = BEFORE if where == _ROWS else where
            self._kept.setdefault(value, (home, set()))[1].add(place)
            if home in AROUND:
                self._need(home, value)

    def _add(self, statements_: set[int], start: int, place: str) -> None:
        if start not in statements_:
            statements_.add(start)
            for value in self._reads(start):
                self._need(place, value)

    def _is_cheap(self, start: int) -> bool:
        statement = self._statements[start]
        kind = traits_of(self._program.spec(start)) if isinstance(statement, int) else None
        is_window = isinstance(kind, Slicing) and not kind.indexed
        return is_window or isinstance(kind, Constant | Elementwise | View)


def _start(statement: int | Loop | Branches) -> int:
    return statement if isinstance(statement, int) else statement.op
