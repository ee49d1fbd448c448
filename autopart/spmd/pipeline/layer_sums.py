"""What layers leave for nothing but sums over microbatches: it stays in its stage until all of them are through.

    in each microbatch                    behind the loop over microbatches
      dW = rows of layers' gradients        sum of dW, a stage's rows in the stage
      ds = gradients of what all share      sum of ds over microbatches and layers, a part of it in each stage
      G += convert(dW / 8)                  G + convert(sum / 8)

What is linear in a sum is made once, of the sum. An op is linear in the operands in which a sum may be pending
(`core/ops/passages.py`), and in floats of another width that it makes of some.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from autopart.base.errors import BlockedError
from autopart.core.control_flow import Carry
from autopart.core.op import SUM
from autopart.core.ops.rule import passages_of
from autopart.core.program import Program
from autopart.core.splats import splat_behind
from autopart.spmd.pipeline.layer_loops import LayerLoop, blocked, users_of


@dataclass(frozen=True)
class LayerSums:
    """`linear`: value -> the arrays that the backward loop leaves in which it is linear, and which are summed."""

    program: Program
    backward: LayerLoop
    linear: Mapping[int, frozenset[int]]

    @staticmethod
    def find(
        program: Program,
        backward: LayerLoop,
        reads: Mapping[int, Iterable[int]],
        is_known: Callable[[int], bool],
        handed: Iterable[int],
    ) -> LayerSums:
        """Those of a nest.

        reads     op of a microbatch, in order -> what it reads of others
        is_known  whether a value is the same for all microbatches
        handed    what microbatches hand on, and is no sum

        Raises `BlockedError` with the first op that needs one microbatch's gradients of all layers.
        """
        stacks = frozenset(stack.carry.after for stack in backward.stacks)
        sources = stacks | {carry.after for carry in backward.states if _adds_layers(program, carry)}
        while True:
            linear = {source: frozenset({source}) for source in sources}
            wrong = next(_not_linear(program, linear, reads, is_known, handed), None)
            if wrong is None:
                return LayerSums(program, backward, linear)
            op, of = wrong
            if of <= stacks:
                raise _needs_gradients(program, op, handed)
            sources -= of - stacks

    @property
    def behind(self) -> list[int]:
        """The ops that are linear in sums, in order."""
        return sorted({int(self.program.value_op[value]) for value, of in self.linear.items() if value not in of})

    def types(self, terms: Iterable[tuple[int, int]]) -> dict[int, str]:
        """Array that is summed -> element type of the sum: the widest of its own, and of what (to, term) adds it to."""
        found = dict[int, str]()
        for to, term in terms:
            for source in self.linear[term]:
                types = [self.program.type_of(value) for value in (source, to)]
                found[source] = max(types, key=lambda type_: type_.element_bytes).dtype
        return found


def _needs_gradients(program: Program, op: int, handed: Iterable[int]) -> BlockedError:
    for value in handed:
        if int(program.value_op[value]) == op:
            what = f"{program.type_of(value)} is handed from microbatch to microbatch, and is no sum"
            why = "several microbatches are under way at once, each in another stage"
            return blocked(program, op, what, why, "of the layers' gradients, sums are what they may leave")
    what, why = f"{program.spec(op).kind} reads one microbatch's gradients of all layers", "each stage has its layers' "
    return blocked(program, op, what, why + "part at another time", "read the sum over microbatches, after their loop")


def _adds_layers(program: Program, carry: Carry) -> bool:
    """Whether layers do nothing with a carry but add to it, from zeros on."""
    following = int(program.operands_of(carry.op)[1])
    op, readers = int(program.value_op[following]), [users_of(program, v) for v in (carry.inside, following)]
    adds = program.spec(op).kind == "add" and carry.inside in program.operands_of(op).tolist()
    return adds and max(map(len, readers)) == 1 and splat_behind(program, int(program.operands[carry.initial])) == 0


def _not_linear(
    program: Program,
    linear: dict[int, frozenset[int]],
    reads: Mapping[int, Iterable[int]],
    is_known: Callable[[int], bool],
    handed: Iterable[int],
) -> Iterator[tuple[int, frozenset[int]]]:
    """Adds to `linear` what is; yields ops that are not, with what they read of sums."""
    for op, read in reads.items():
        of = frozenset[int]().union(*(linear[value] for value in read if value in linear))
        if of and not _is_linear(program, op, linear, is_known):
            yield op, of
        elif of:
            linear.update(dict.fromkeys(program.results_of(op), of))
    yield from ((int(program.value_op[value]), linear[value]) for value in handed if value in linear)


def _is_linear(program: Program, op: int, linear: Mapping[int, object], is_known: Callable[[int], bool]) -> bool:
    """Whether an op may as well be made of the sum of what it reads of some values."""
    spec, read = program.spec(op), program.operands_of(op).tolist()
    parts = tuple(value in linear for value in read)
    if op in program.inner_scopes or not all(is_known(value) for value in read if value not in linear):
        return False
    are_floats = not any(type_.dtype.startswith(("i", "ui")) for type_ in (*spec.operands, *spec.results))
    passes = any(passage.code == SUM and passage.parts == parts for passage in passages_of(spec))
    return passes or (spec.kind == "convert" and are_floats)
