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

Microbatches come to each place in order. So one may read what the one before it has left there: a key that is split,
the greatest loss so far. It cannot go through layers that need what is known behind them of the one before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

from autopart.base.errors import BlockedError
from autopart.core.control_flow import Carry, Loop, loop_of, statements
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Constant, Elementwise, Slicing, View
from autopart.core.passes.recompute.turns import Turns
from autopart.core.program import ROOT, Program
from autopart.spmd.pipeline.layer_loops import LayerLoop, blocked, layer_loop, users_of
from autopart.spmd.pipeline.layer_sums import LayerSums

BEFORE, ENTER, LEAVE, BETWEEN = "before", "enter", "leave", "between"
RETURN, GONE, AFTER = "return", "gone", "after"
"""Places of a microbatch, in order: around the layers, and at the first and last stage on its way there and back."""

PLACES = (BEFORE, ENTER, LEAVE, BETWEEN, RETURN, GONE, AFTER)
"""All of them."""

AROUND = (BEFORE, BETWEEN, AFTER)
"""The places that compute; at the others something is handed over."""

_ROWS, _ONCE, _MADE = "rows", "once", "made"
"""Places of what any of those may make: of rows of the batch, of no microbatch, of nothing at all."""

_RANK = {_MADE: 0, _ONCE: 1, _ROWS: 2, BEFORE: 3, LEAVE: 4, BETWEEN: 4, GONE: 5, AFTER: 5}
_BEHIND = {LEAVE: BETWEEN, GONE: AFTER}
"""Where a statement stands that reads what is there."""


class Sum(NamedTuple):
    """A carry to which each microbatch adds `terms`, and what is linear in sums of the layers: `late`."""

    carry: Carry
    terms: tuple[int, ...]
    late: tuple[int, ...] = ()


class Handed(NamedTuple):
    """A carry that each microbatch makes of what the one before it has left: `value`; or it writes its own part."""

    carry: Carry
    value: int


class Kept(NamedTuple):
    """A value that waits for a later place: made in `home`, read in `readers`."""

    home: str
    readers: set[str]


@dataclass
class Nest:
    """A nest by what stands where.

    once        statements that run before all, in order
    made        place -> the statements that run there, in order
    kept        value -> from where to where it waits
    added       place -> (sum, term) of what is added up there
    left        place -> what is handed on to the next microbatch there
    travelling  what layers read of their microbatch: forward, and backward
    summed      carries of the backward loop that add up over microbatches in their stages, and over layers if they are
                no stacks: value after the loop -> element type of the sum
    behind      statements that are linear in these, and run once, behind the loop over microbatches
    """

    program: Program
    step: Loop
    counter: Carry
    forward: LayerLoop
    backward: LayerLoop
    sums: list[Sum] = field(default_factory=list[Sum])
    handed: list[Handed] = field(default_factory=list[Handed])
    once: list[int] = field(default_factory=list[int])
    made: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    kept: dict[int, Kept] = field(default_factory=dict[int, Kept])
    added: dict[str, list[tuple[Sum, int]]] = field(default_factory=dict[str, list[tuple[Sum, int]]])
    left: dict[str, list[Handed]] = field(default_factory=dict[str, list[Handed]])
    travelling: list[list[int]] = field(default_factory=list[list[int]])
    summed: dict[int, str] = field(default_factory=dict[int, str])
    behind: list[int] = field(default_factory=list[int])

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
    loops = _loops(program)
    found = [nest for loop in loops for nest in _nests(program, loop)]
    if not found:
        raise _without_nest(program, loops)
    found = [nest for nest in found if nest.forward.row_reads]
    if not found:
        raise BlockedError(
            "no layer has parameters of its own, taken as rows of stacked arrays in the order of the layers",
            why="a stage that holds the parameters of all layers has idle ticks, and gains nothing",
            hint="layers in a jax.lax.scan over stacked parameters; the batch tiled on the axis if all share theirs",
        )
    return _Placing(max(found, key=lambda nest: _row_bytes(program, nest.forward))).nest


def _loops(program: Program) -> list[Loop]:
    return [loop_of(program, op) for op in program.inner_scopes if program.spec(op).kind == "while"]


def _layer_loops(program: Program, loops: Sequence[Loop]) -> list[LayerLoop]:
    both = [layer_loop(program, loop, way) for loop in loops for way in (False, True)]
    return [found for found in both if found is not None and found.row_reads]


def _row_bytes(program: Program, layers: LayerLoop) -> float:
    return sum(program.type_of(value).bytes for value in layers.row_reads.values())


def _without_nest(program: Program, loops: Sequence[Loop]) -> BlockedError:
    """What of a nest a program lacks."""
    roles = _layer_loops(program, loops)
    if not roles:
        return BlockedError(
            "the program has no equal layers, neither in a loop nor one after the other",
            why="stages are runs of layers with the same ops on parameters of the same shapes",
            hint="microbatches=8 in place of a loop of the model's own over layers that stand one by one",
        )
    largest = max(roles, key=lambda layers: _row_bytes(program, layers)).loop
    op, body = largest.op, largest.body.scope
    if program.op_scope[op] == ROOT and any(body.start <= layers.loop.op < body.end for layers in roles):
        what, why = "a loop over microbatches is differentiated as a whole", "all forwards end before it goes back"
        return blocked(program, op, what, why, "jax.grad inside the loop, or jax.checkpoint around what a turn does")
    if program.op_scope[op] == ROOT:
        what, why = "the loop over layers is in no loop over microbatches", "stages work on different microbatches"
        return blocked(program, op, what, why, 'microbatches=8, or ap.Microbatch({"batch": 0}, 8) beside it')
    what = "no loop over the same layers, from the last to the first, reads what this one leaves"
    why = "what goes through stages is a scan from the first layer to the last, and the one that differentiates it"
    hint = "a training step, with jax.grad inside; layers scanned from first to last"
    return blocked(program, op, what, why, f"{hint}; without gradients, tiles of the layers along the axis")


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
        self._program, self.nest = nest.program, nest
        scope = nest.step.body.scope
        starts = {s if isinstance(s, int) else s.op: s for s in statements(self._program, scope.start, scope.end)}
        self._statements, self._end = starts, dict(pairwise([*starts, scope.end]))
        self._of_op = {op: start for start, end in self._end.items() for op in range(start, end)}
        self._adding = set[int]()
        self._place = dict[int, str]()
        self._home = dict[int, str]()
        nest.forward = self._with_side_outputs(nest.forward, nest.backward)
        self._carries()
        self._classify()
        nest.forward, nest.backward = self._with_own_rows(nest.forward), self._with_own_rows(nest.backward)
        self._sum_layers()
        self._plan()

    # ---- what the loop over microbatches carries

    def _carries(self) -> None:
        nest, program = self.nest, self._program
        for carry in nest.step.carries:
            following = int(program.operands_of(carry.op)[1])
            if carry is nest.counter:
                self._adding.add(int(program.value_op[following]))
            elif (found := self._terms(carry, following)) is not None:
                self._adding |= found.keys()
                nest.sums.append(Sum(carry, tuple(leaf for term in found.values() for leaf in self._leaves(term))))
            else:
                nest.handed.append(Handed(carry, following))
                self._home[carry.inside] = BEFORE

    def _terms(self, carry: Carry, value: int) -> dict[int, int] | None:
        """The ops that add to a carry until `value` -> what they add; None where that is not all that happens to it."""
        if len(users_of(self._program, value)) > 1:
            return None
        if value == carry.inside:
            return {}
        op = int(self._program.value_op[value])
        if self._of_op.get(op) != op or self._program.spec(op).kind != "add":
            return None
        left, right = self._program.operands_of(op).tolist()
        ways = ((self._terms(carry, into), term) for into, term in ((left, right), (right, left)))
        return next((found | {op: term} for found, term in ways if found is not None), None)

    def _leaves(self, term: int) -> list[int]:
        """What is added up to a term: it may be known in different places, and need not wait for the last of them."""
        program, op = self._program, int(self._program.value_op[term])
        if self._of_op.get(op) != op or program.spec(op).kind != "add" or len(users_of(program, term)) > 1:
            return [term]
        self._adding.add(op)
        return [leaf for value in program.operands_of(op).tolist() for leaf in self._leaves(value)]

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

    def place_of(self, value: int) -> str:
        """The place in which what a value is made of is known."""
        above = self._statement_of(value)
        if above is None:
            return _ROWS if value == self.nest.counter.inside else self._home.get(value, _ONCE)
        return self._place[above]

    def _classify(self) -> None:
        """Places of statements, and of what is handed on: that is left where it is known."""
        before = None
        while before != self._home:
            before = dict(self._home)
            for start in self._statements:
                if start not in self._adding:
                    self._place[start] = self._place_behind(start)
            for carry, value in self.nest.handed:
                self._home[carry.inside] = max(before[carry.inside], self._around(value), key=_RANK.__getitem__)

    def _place_behind(self, start: int) -> str:
        """The place of a statement, behind those of what it reads."""
        nest, read = self.nest, list(self._reads(start))
        least = _MADE if self._is_of(start, Constant | Elementwise | View) else _ONCE
        found = max((least, *map(self.place_of, read)), key=_RANK.__getitem__)
        own = LEAVE if start == nest.forward.loop.op else GONE if start == nest.backward.loop.op else ""
        if own and _RANK[found] >= _RANK[own]:
            late = next(v for v in read if self.place_of(v) == found)
            raise blocked(
                self._program,
                start,
                f"layers read what the layers leave of the microbatch before: {self._program.type_of(late)}",
                why="several microbatches are under way at once, each in another stage",
                hint="read it after the loop over microbatches",
            )
        return own or _BEHIND.get(found, found)

    def _around(self, value: int) -> str:
        """The first of the places that compute at which a value is known."""
        found = self.place_of(value)
        found = _BEHIND.get(found, found)
        return found if found in AROUND else BEFORE

    def _is_of(self, start: int, kinds: Any) -> bool:
        return isinstance(self._statements[start], int) and isinstance(traits_of(self._program.spec(start)), kinds)

    def _with_own_rows(self, loop: LayerLoop) -> LayerLoop:
        """Rows are taken of stages' own arrays where these are the same for all microbatches; else of what travels."""
        kept, reads = self.nest.forward.stack_of, loop.row_reads
        rows = {op: v for op, v in reads.items() if v in kept or self._is_known(v)}
        others = [value for op, value in reads.items() if op not in rows]
        return replace(loop, row_reads=rows, outside=tuple(dict.fromkeys([*loop.outside, *others])))

    def _with_side_outputs(self, loop: LayerLoop, backward: LayerLoop) -> LayerLoop:
        """Stacks that others than the backward loop read go along with the stream: each stage adds its layers' rows."""
        program, rows = self._program, backward.row_reads
        aside = [
            stack
            for stack in loop.stacks
            if any(program.use_op[use] not in rows for use in users_of(program, stack.carry.after))
        ]
        kept = tuple(stack for stack in loop.stacks if stack not in aside)
        return replace(loop, stacks=kept, states=(*loop.states, *(stack.carry for stack in aside)))

    def _sum_layers(self) -> None:
        nest, handed = self.nest, [value for _, value in self.nest.handed]
        reads = {start: list(self._reads(start)) for start in sorted(self._place)}
        found = LayerSums.find(self._program, nest.backward, reads, self._is_known, handed)
        for number, (carry, terms, _) in enumerate(nest.sums):
            late = tuple(term for term in terms if term in found.linear)
            nest.sums[number] = Sum(carry, tuple(term for term in terms if term not in late), late)
        nest.summed = found.types((total.carry.inside, term) for total in nest.sums for term in total.late)
        nest.behind = found.behind
        totals = tuple(carry for carry in nest.backward.states if carry.after in nest.summed)
        own = tuple(carry for carry in nest.backward.states if carry not in totals)
        nest.backward = replace(nest.backward, states=own, totals=totals)

    def _is_known(self, value: int) -> bool:
        """Whether a value is the same for all microbatches."""
        return self.place_of(value) in (_ONCE, _MADE)

    # ---- what each place makes

    def _plan(self) -> None:
        nest, program = self.nest, self._program
        roots: dict[str, list[int]] = {place: [] for place in (*PLACES, _ONCE)}
        nest.added, nest.left = {place: [] for place in PLACES}, {place: [] for place in PLACES}
        for total in nest.sums:
            for term in total.terms:
                nest.added[self._around(term)].append((total, term))
                roots[self._around(term)].append(term)
        for handed in nest.handed:
            nest.left[self._home[handed.carry.inside]].append(handed)
            roots[self._home[handed.carry.inside]].append(handed.value)
        read = [v for op in nest.behind for v in program.operands_of(op).tolist()]
        roots[_ONCE] += filter(self._is_known, read)
        for loop, place in ((nest.forward, ENTER), (nest.backward, RETURN)):
            roots[place] += [*(int(program.operands[c.initial]) for c in loop.states), *loop.outside]
            roots[_ONCE] += [value for value in loop.row_reads.values() if value not in nest.forward.stack_of]
            nest.travelling.append([v for v in loop.outside if not self._is_known(v)])
        self._make_ready([(place, value) for place, values in roots.items() for value in values])

    def _make_ready(self, todo: list[tuple[str, int]]) -> None:
        """Has values ready in places: made there, made once before all, or kept from where they are made."""
        nest, made = self.nest, set[tuple[str, int]]()
        while todo:
            place, value = todo.pop()
            start, where = self._statement_of(value), self.place_of(value)
            if start is None:
                if self._home.get(value, place) != place:
                    nest.kept.setdefault(value, Kept(where, set())).readers.add(place)
                continue
            if _ONCE in (where, place):
                place = _ONCE
            elif where not in (_MADE, place) and not (where == _ROWS and (place == BEFORE or self._is_cheap(start))):
                home = BEFORE if where == _ROWS else where
                nest.kept.setdefault(value, Kept(home, set())).readers.add(place)
                if home not in AROUND:
                    continue
                place = home
            if (place, start) not in made:
                made.add((place, start))
                todo += [(place, read) for read in self._reads(start)]
        nest.once = sorted(start for place, start in made if place == _ONCE)
        nest.made = {at: sorted(start for place, start in made if place == at) for at in PLACES}

    def _is_cheap(self, start: int) -> bool:
        looks_up = getattr(traits_of(self._program.spec(start)), "indexed", False)
        return self._is_of(start, Constant | Elementwise | View | Slicing) and not looks_up
