"""Expert parallelism: each device holds some of the experts, and tokens travel to them.

    dot_general  tokens[e,c,d] . up[e,d,f] -> hidden[e,c,f]      e is a batch dim of both: a dim of experts

A dim of a weight is one of experts if the matmul that reads the weight runs over it as over a batch. Convolutions of
each channel by itself do so too, and have none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autopart.core.layout import LAST_TILE
from autopart.core.op import WHOLE
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Matmul, Structural
from autopart.core.program import Program
from autopart.core.table.partitioning import Partitioning
from autopart.search.space.decision_space import DecisionSpace
from autopart.search.space.decisions import Decision
from autopart.search.space.named.inputs import Inputs, scratch, weights
from autopart.search.space.named_schedules import Decisions, Named, NamedSchedule, register_named_schedule

STEPS = 5
"""Ops of a weight on the way to its product, at most: the layer of a stack, as it is cast, reshaped and turned."""


@register_named_schedule("Experts")
@dataclass(frozen=True)
class ExpertParallelism(NamedSchedule):
    """Each device holds its share of the experts."""

    def decisions(self, space: DecisionSpace) -> Iterator[Named]:
        """See `NamedSchedule`."""
        for axis in space.axes:
            yield Named(f"Experts({axis})", experts(space, axis), (axis,))


def experts(space: DecisionSpace, axis: str) -> Decisions:
    """The dims of experts of weights; none where there are none."""
    found: list[Decision] = []
    whole = weights(space, Inputs.of(space, axis))
    with scratch(space) as partitioning:
        for probe in space.probes:
            decision, values = probe.decision, space.values(probe.decision)
            is_weight = whole.issuperset(values.tolist())
            if decision.axis != axis or not is_weight or space.program.value_rank[values[0]] < 3:
                continue
            mark = partitioning.mark()
            if space.apply(partitioning, decision) and _is_batch_of_matmul(space, partitioning, decision):
                found.append(decision)
            else:
                partitioning.undo(mark)
    return tuple(found)


def _is_batch_of_matmul(space: DecisionSpace, partitioning: Partitioning, decision: Decision) -> bool:
    """True if the matmuls that read the weight slice both of their operands along the axis and add nothing up."""
    program, value = space.program, int(space.values(decision)[0])
    index, shape = partitioning.mesh.index(decision.axis), program.type_of(value).shape
    for op in _readers(space, value):
        mapping = partitioning.state.mapping[op, index]
        if mapping < 0 or len(program.operands_of(op)) < 2:
            continue
        chosen = partitioning.table.of[program.op_spec[op]][mapping]
        read = zip(program.operands_of(op).tolist(), chosen.operands, strict=True)
        sizes = {program.type_of(v).shape[d] for v, d in read if d != WHOLE}
        if WHOLE not in chosen.operands[:2] and chosen.results[0] < LAST_TILE and sizes == {shape[decision.dim]}:
            return True
    return False


def _readers(space: DecisionSpace, value: int) -> list[int]:
    """Matmuls that read the value, directly or through ops of it alone: a cast, the slice of a layer, a reshape."""
    program, found, todo = space.program, list[int](), [value]
    pointer, user = program.users
    for _ in range(STEPS):
        ops = [op for v in todo for op in program.use_op[user[pointer[v] : pointer[v + 1]]].tolist()]
        found += [op for op in ops if _is_matmul(program, op)]
        todo = [v for op in ops if _is_of_one_array(program, op) for v in program.results_of(op)]
    return found


def _is_of_one_array(program: Program, op: int) -> bool:
    """True for an op that computes something of one array, be it at places that it is told, and of nothing else."""
    alone = sum(program.type_of(v).shape != () for v in program.operands_of(op).tolist()) == 1
    return alone and not _is_matmul(program, op) and not isinstance(traits_of(program.spec(op)), Structural)


def _is_matmul(program: Program, op: int) -> bool:
    return isinstance(traits_of(program.spec(op)), Matmul)
