"""Schedules that divide weights: each device holds its share of heads, hidden dims and vocabulary (Megatron).

    probe                      divides            leaves sums of
    tile<params/*/up, 1>       the MLP            down's result [b,s,d], once a layer
    tile<params/*/qkv, 2>      heads              out's result [b,s,d], once a layer
    tile<params/*/qkv, 3>      each head          the scores [b,h,s,s]
    tile<params/*/up, 0>       all, by features   up's, query's, key's and value's results: 7 [b,s,d]

A weight is divided on the dim that divides most flop per byte of the sums, and of what is read whole. Propagation
carries it through a block to the matmul that sums over it: so query, key and value may be one weight or three, a gate
may stand beside `up`, and keys may be shared by heads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from autopart.core.table.partitioning import Partitioning
from autopart.search.space.decision_space import DecisionSpace
from autopart.search.space.decisions import Decision
from autopart.search.space.named.inputs import Inputs, scratch, weights
from autopart.search.space.named_schedules import Decisions, Named, NamedSchedule, register_named_schedule
from autopart.search.space.probe import Probe

INDEPENDENT = 0.8
"""Of the flop that a decision divides alone, what it must divide beside those taken before."""

BYTES = 1e-3
"""Share of all bytes that is added to those moved, so that moving a few numbers is not worth everything."""

MOST_SUMS = 6
"""Groups of sums that sequence parallelism tiles, those with the most bytes first."""


@register_named_schedule("Megatron")
@dataclass(frozen=True)
class Megatron(NamedSchedule):
    """Each device holds its share of heads and hidden dims."""

    def decisions(self, space: DecisionSpace) -> Iterator[Named]:
        """See `NamedSchedule`."""
        for axis in space.axes:
            yield Named(f"Megatron({axis})", matrices(space, axis, tables=False), (axis,))


@register_named_schedule("MegatronVocab")
@dataclass(frozen=True)
class MegatronVocabulary(NamedSchedule):
    """Megatron, and each device holds its share of the vocabulary."""

    def decisions(self, space: DecisionSpace) -> Iterator[Named]:
        """See `NamedSchedule`."""
        for axis in space.axes:
            found = matrices(space, axis, tables=True)
            if found != matrices(space, axis, tables=False):
                yield Named(f"MegatronVocab({axis})", found, (axis,))


@register_named_schedule("MegatronSP")
@dataclass(frozen=True)
class MegatronSequence(NamedSchedule):
    """Megatron with sequence parallelism: between blocks each device holds its share of the sequence."""

    def decisions(self, space: DecisionSpace) -> Iterator[Named]:
        """See `NamedSchedule`."""
        for axis in space.axes:
            found = matrices(space, axis, tables=True)
            sums = _sums(space, found, axis) if found else ()
            if sums:
                yield Named(f"MegatronSP({axis})", (*found, *sums), (axis,))


def matrices(space: DecisionSpace, axis: str, *, tables: bool) -> Decisions:
    """The best dim of each weight, those that divide most per byte of sums first; `tables`: embeddings too."""
    return best_dims(space, [p for p in weight_probes(space, axis) if tables or not is_table(space, p)])


def weight_probes(space: DecisionSpace, axis: str) -> list[Probe]:
    """Probes of weights along the axis, those that divide most per byte of sums first; none of a dim of layers."""
    whole = weights(space, Inputs.of(space, axis))
    on_axis = (p for p in space.probes if p.decision.axis == axis and not _is_of_layers(space, p))
    found = [p for p in on_axis if whole.issuperset(space.values(p.decision).tolist())]
    results = _results(space)
    return sorted(found, key=lambda p: (round(_worth(p, _left_in_parts(space, p, results)), 6), p.tiled), reverse=True)


def _results(space: DecisionSpace) -> list[int]:
    """Outputs that are no next value of an argument."""
    program, kept = space.program, set(space.program.ties)
    return [value for place, value in enumerate(program.outputs) if place not in kept]


def _left_in_parts(space: DecisionSpace, probe: Probe, results: Iterable[int]) -> float:
    """The bytes of results that a decision leaves in parts, as a share of all values' bytes.

    They count as a sum does: the last matmul of `tanh(x @ up) @ down` has none where `down` is divided on its columns,
    but then `up` can only be divided on its rows, and leaves a sum over all hidden dims.
    """
    axis = probe.decision.axis
    with scratch(space) as partitioning:
        space.apply(partitioning, probe.decision)
        parts = [value for value in results if partitioning.tiled_dim(value, axis) >= 0]
        return float(space.facts.value_bytes[parts].sum()) / space.facts.total_bytes


def _is_of_layers(space: DecisionSpace, probe: Probe) -> bool:
    shapes = (space.program.type_of(v).shape for v in space.values(probe.decision).tolist())
    return any(probe.decision.dim in space.facts.walked_dims.get(shape, ()) for shape in shapes)


def best_dims(space: DecisionSpace, probes: Iterable[Probe]) -> Decisions:
    """Of probes of weights, in their order, the decisions that do beside those before them what they do alone."""
    found: list[Decision] = []
    with scratch(space) as partitioning:
        for probe in probes:
            if _applied_whole(space, partitioning, probe):
                found.append(probe.decision)
    return tuple(found)


def _applied_whole(space: DecisionSpace, partitioning: Partitioning, probe: Probe) -> bool:
    """Applies a decision if it then does what it did alone: features are none beside hidden dims."""
    mark, before = partitioning.mark(), divided(space, partitioning, probe.decision.axis)
    space.apply(partitioning, probe.decision)
    gained = divided(space, partitioning, probe.decision.axis) - before
    if gained >= INDEPENDENT * (probe.tiled + probe.ended + probe.summed) > 0:
        return True
    partitioning.undo(mark)
    return False


def divided(space: DecisionSpace, partitioning: Partitioning, axis: str) -> float:
    """The share of the flop in ops with a loop over the axis."""
    return float(space.facts.flop[partitioning.state.mapping[:, partitioning.mesh.index(axis)] >= 0].sum())


def _worth(probe: Probe, left_in_parts: float) -> float:
    return (probe.tiled + probe.ended + probe.summed) / (probe.moved + left_in_parts + BYTES)


def is_table(space: DecisionSpace, probe: Probe) -> bool:
    """True for a probe of an embedding."""
    return bool(space.facts.looked_up[space.values(probe.decision)[0]])


def _sums(space: DecisionSpace, matrices: Decisions, axis: str) -> Decisions:
    """Tiles of the sums that the matrices leave, on the sequence: the dim behind the batch, or the only one there is.

    The last dim has the features, over which norms would have to be summed.
    """
    found: list[Decision] = []
    with scratch(space) as partitioning:
        for decision in matrices:
            space.apply(partitioning, decision)
        for _ in range(MOST_SUMS):
            decision = _largest_sum(space, partitioning, axis, {d.target for d in found})
            if decision is None:
                break
            space.apply(partitioning, decision)
            found.append(decision)
    return tuple(found)


def _largest_sum(space: DecisionSpace, partitioning: Partitioning, axis: str, done: set[int]) -> Decision | None:
    ranks, groups = space.program.value_rank, space.facts.groups
    for target in _pending_groups(space, partitioning, axis):
        values = groups.values(target)
        dims = [1, 0] if ranks[values[0]] >= 3 else [0]
        legal = [d for d in dims if not partitioning.why_not_tile(int(values[0]), d, axis)]
        if target not in done and ranks[values[0]] >= 2 and legal:
            return Decision("tile_group", target, legal[0], axis)
    return None


def _pending_groups(space: DecisionSpace, partitioning: Partitioning, axis: str) -> list[int]:
    """Groups of activations of which each device holds a part of a sum, those with the most bytes first."""
    pending = [o.decision for o in space.options(partitioning) if o.decision.axis == axis and o.decision.dim == 0]
    found = {d.target for d in pending if partitioning.pending(int(space.values(d)[0]), axis)}
    in_bytes = {g: float(space.facts.value_bytes[space.facts.groups.values(g)].sum()) for g in found}
    ended = {g for g in found if not space.facts.awaited[space.program.value_op[space.facts.groups.values(g)[0]]]}
    return sorted(found - ended, key=lambda g: (-in_bytes[g], g))
