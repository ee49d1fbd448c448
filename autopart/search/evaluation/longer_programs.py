"""Programs with more layers than three, for states of which three layers do not say all (`fewer_layers_costs.py`).

    batches of reductions repeat after 2 layers     2 layers count as one: 6 of 32, and what is at the ends
    with each layer, from layer 12 on               layers 1 to 14, and what is at the end
    they never do                                   all 32

Decisions are carried out on the program with fewest layers, and the lowering of the longer one is made of that
(`spmd/more_layers.py`): only the simulation takes longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from autopart.core.program import Program
from autopart.core.repeats.fewer_layers import FewerLayers
from autopart.core.repeats.like_ops import Like
from autopart.costmodel.compiled.layers.batch_period import Repeats
from autopart.costmodel.compiled.whole_program import WholeProgram
from autopart.search.evaluation.cost import Cost, StateCosts
from autopart.spmd.device_local import DeviceLocal, LoweringContext
from autopart.spmd.more_layers import shares_alike, with_more_layers

WORTH_SHARE = 0.7
"""A program with fewer layers is made where it has at most this share of the whole program's ops."""

SECOND_SHARE = 0.5
"""The same of a program that is simulated after one with even fewer layers, which said nothing."""


class WholeCosts(NamedTuple):
    """What lowering and pricing the whole program take."""

    statics: LoweringContext
    price: StateCosts


@dataclass(frozen=True, eq=False)
class LongerProgram:
    """A program with more layers than the one that decisions are carried out on.

    like     from its ops to those of that program
    totals   makes of a run those of the whole program; None where this is the whole program
    """

    program: Program
    like: Like
    statics: LoweringContext
    price: StateCosts
    totals: WholeProgram | None

    def shares_alike(self, local: DeviceLocal) -> bool:
        """True if uses share gathers here as they do in the lowering of the program with fewest layers."""
        return shares_alike(local, with_more_layers(local, self.program, self.statics, self.like), self.like)

    def cost(self, local: DeviceLocal, actions: int) -> Cost | None:
        """The whole program's, by the lowering of the program with fewest layers; None where it is not exact."""
        longer = with_more_layers(local, self.program, self.statics, self.like)
        return self.price(longer, actions) if self.totals is None else self.price.of_whole(longer, actions, self.totals)


@dataclass(frozen=True, eq=False)
class LongerPrograms:
    """The longer programs by where batches repeat themselves, made when they are asked for.

    fewest       that which decisions are carried out on; `whole` is the one with all layers
    like_all     from its ops to those of the program with fewest layers
    whole_costs  makes what the whole program takes
    """

    fewest: FewerLayers
    whole: Program
    like_all: Like
    whole_costs: Callable[[], WholeCosts]
    _made: dict[tuple[Repeats, float] | None, LongerProgram | None] = field(default_factory=dict, repr=False)

    def tried(self, repeats: Repeats, throughout: bool) -> Iterator[LongerProgram]:
        """That without layers where batches do so, then the one with more; `throughout`: that with fewest was run."""
        first = None if throughout else self.where_batches(repeats, WORTH_SHARE)
        if first is not None:
            yield first
        second = self.where_batches(repeats.farther_inside(), SECOND_SHARE)
        if second is not None:
            yield second

    def where_batches(self, repeats: Repeats, most: float) -> LongerProgram | None:
        """That without layers where batches do so; None where it would have more than `most` of the whole's ops."""
        if (repeats, most) not in self._made:
            self._made[repeats, most] = self._where_batches(repeats, most)
        return self._made[repeats, most]

    def with_all(self) -> LongerProgram:
        """The whole program."""
        found = self._made.get(None)
        if found is None:
            costs = self.whole_costs()
            found = self._made[None] = LongerProgram(self.whole, self.like_all, costs.statics, costs.price, None)
        return found

    def _ops_at_least(self, repeats: Repeats) -> int:
        """Ops that are left where all layers but three periods are left out of those between which batches repeat."""
        left_out = (repeats.last - repeats.first + 1) // repeats.period * repeats.period - 3 * repeats.period
        return self.whole.op_count - left_out * self.fewest.three.ops.shape[1]

    def _where_batches(self, repeats: Repeats, most: float) -> LongerProgram | None:
        if self._ops_at_least(repeats) > most * self.whole.op_count:
            return None
        fewer = self.fewest.with_more(self.whole, *repeats)
        if fewer is None or fewer.program.op_count > most * self.whole.op_count:
            return None
        totals = WholeProgram.of(fewer)
        if totals is None:
            return None
        program, costs = fewer.program, self.whole_costs()
        like = Like.of(program, self.fewest.program, self.fewest.stands_in[fewer.ops])
        return LongerProgram(
            program, like, LoweringContext.of(program), costs.price.of_part(program, totals.left_out), totals
        )
