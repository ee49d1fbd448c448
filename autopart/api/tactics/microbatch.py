"""`ap.Microbatch`: a tactic that runs a step in a loop over parts of its batch.

[ap.Microbatch({"batch": 0}, steps=4), BP, Z3]      a quarter of the activations; gradients summed over four turns

It tiles along a temporal axis, which is no mesh axis, by the same actions and the same propagation as any tactic. What
that tiles becomes a sequential loop of the program before tactics along mesh axes act: loops over devices and over time
are loops of one nest over different axes, so wherever the tactic stands in a schedule, the result is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autopart.api.tactics.manual import ManualPartition
from autopart.api.tactics.tactic import Tactic, TacticContext, TacticResult
from autopart.base.arguments import ANYTHING, STRING, check_fields, mapping, whole
from autopart.base.errors import ArgumentError, BlockedError, PartitionError, TileError
from autopart.base.quoting import short_place
from autopart.core.mesh import Mesh
from autopart.core.passes import Pass
from autopart.core.program import Program
from autopart.core.table.actions import Action, Atomic, Tile
from autopart.core.table.partitioning import Partitioning
from autopart.spmd.microbatch import AXIS, LoopPlan, Middle, microbatched, plan_loops


@dataclass(frozen=True)
class Microbatch:
    """Runs what depends on each part of a batch in a loop over `steps` parts, one after the other.

    inputs  what is cut, as in `ManualPartition`: names of arguments to dims, `{"batch": 0}`
    steps   how many microbatches; they divide the dims
    loops   how many loops there may be, one after the other. One is enough where no op needs the whole batch in the
            middle; each further loop keeps what it reads of the loops before it for the whole batch
    name    what the metadata calls the tactic

    Sums over the batch are accumulated in their own type, so they are rounded in another order than in one piece;
    random numbers are those of the whole batch. Raises, when applied: `UnknownNameError` for an input that is not
    there, `TileError` where the steps do not divide it, and `BlockedError` with the op and its source line where an op
    needs the whole batch in the middle of a loop.
    """

    inputs: Mapping[str, Any]
    steps: int
    loops: int = 1
    name: str = "Microbatch"

    def __post_init__(self) -> None:
        inputs = mapping(STRING, ANYTHING, "a dict of names to dims, such as {'batch': 0}")
        check_fields(self, inputs=inputs, steps=whole(1, 2**20), loops=whole(1, 2**20), name=STRING)

    def program_pass(self, context: TacticContext) -> Pass:
        """The pass that writes the loop; see `RewritesProgram`."""
        return MicrobatchLoop(self, context)

    def act(self, partitioning: Partitioning, context: TacticContext) -> TacticResult:
        """See `Tactic.act`: the loop is there already. Raises `ArgumentError` where no program can be rewritten."""
        if context.schedule:
            raise ArgumentError(
                f"ap.Microbatch cannot stand in {context.schedule}",
                why="a search decides about one program, and this tactic makes another of it",
                hint="put it into the schedule that ap.jit is given, beside the search",
            )
        return TacticResult([], self.report)

    @property
    def report(self) -> dict[str, Any]:
        """What it says of itself in a report, as plain values."""
        return {"microbatch": {"inputs": plain(self.inputs), "steps": self.steps, "loops": self.loops}}


def plain(decision: Any) -> Any:
    """Names and dims as plain values; anything else, such as a callable, as text."""
    if isinstance(decision, Mapping):
        return {str(key): plain(below) for key, below in decision.items()}
    return decision if isinstance(decision, int) else repr(decision)


@dataclass(frozen=True)
class MicrobatchLoop(Pass):
    """The pass of a `Microbatch` at its place in a schedule, or of the loop that another tactic is about to stage."""

    tactic: Microbatch
    context: TacticContext
    staged_by: Tactic | None = None

    def __repr__(self) -> str:
        return repr(self.tactic)

    def apply(self, program: Program) -> Program:
        """The program with its loop over microbatches."""
        try:
            return program if self.tactic.steps == 1 else self._looped(program)
        except PartitionError as error:
            raise self.context.blamed(error, self.staged_by or self.tactic) from None

    def remarks(self, program: Program, made: Program) -> tuple[str, ...]:
        """See `Pass.remarks`: what is computed on the whole batch."""
        if self.tactic.steps == 1:
            return ()
        values = [int(program.value_op[value]) for value in self._plan(program)[0].hoisted]
        said = dict.fromkeys(f"{program.spec(op).kind}  {short_place(program.where(op))}".rstrip() for op in values)
        return tuple(f"computed before the loop, since it needs no activations: {text}" for text in said)

    def _looped(self, program: Program) -> Program:
        plan, taken = self._plan(program)
        if plan.loops > self.tactic.loops:
            raise _conflict(plan, plan.middles[0], self.tactic.loops, self.staged_by is None)
        if not plan.loops:
            raise _not_looped(plan.partitioning, taken)
        return microbatched(plan, self.tactic.steps)

    def _plan(self, program: Program) -> tuple[LoopPlan, Sequence[Action]]:
        """What runs in which loop, and the actions that say what is cut."""
        if program.manual.names:
            raise ArgumentError(
                "the model has a shard_map, and what stands in it cannot be cut into microbatches",
                why=f"it is partitioned by hand over {', '.join(program.manual.names)}",
                hint="loop over microbatches in the model, around its shard_map",
            )
        steps, partitioning = self.tactic.steps, Partitioning(program, Mesh({AXIS: self.tactic.steps}))
        partitioning.table = partitioning.table.without_exchanges()
        try:
            taken = ManualPartition(self.tactic.inputs, AXIS).act(partitioning, self.context).actions
        except TileError as error:
            what = error.what.replace(f'along mesh axis "{AXIS}" (size {steps})', f"into {steps} microbatches")
            raise TileError(what, why=error.why, hint="steps that divide the dim, or a dim that they divide") from None
        for action in taken:
            if isinstance(action, Tile | Atomic) and action.value not in program.argument_place:
                raise ArgumentError(
                    f"{program.shown_name(action.value)} is no argument of the program",
                    why="what is computed is cut as propagation finds",
                    hint=", ".join(map(repr, program.argument_names[:4])),
                )
        return plan_loops(partitioning), taken


def _not_looped(partitioning: Partitioning, actions: Sequence[Action]) -> PartitionError:
    """Why the loop would hold no op: what reads the arguments that are cut, and cannot be cut so."""
    program, stopped = partitioning.program, dict[str, str]()
    pointer, uses = program.users
    for value in [action.value for action in actions if isinstance(action, Tile)]:
        for op in program.use_op[uses[pointer[value] : pointer[value + 1]]].tolist():
            where = program.where(op)
            read = ", ".join(map(str, program.spec(op).operands[:1]))
            left = ", ".join(map(str, program.spec(op).results[:1]))
            stopped[f"{program.spec(op).kind} {read} -> {left}" + (f" at {where}" if where else "")] = ""
    if not stopped:
        return ArgumentError("no op is tiled into microbatches", hint="name an argument and its batch dim")
    return BlockedError(
        "no op is tiled into microbatches",
        why="\n       ".join(["what is named is read by", *list(stopped)[:3]]),
        hint="a number of microbatches that these can be cut into, or another dim",
    )


def _conflict(plan: LoopPlan, middle: Middle, loops: int, may_loop_again: bool) -> BlockedError:
    program = plan.partitioning.program
    again = f"loops={plan.loops}, which keeps for the whole batch what later loops read of earlier ones; or "
    kind, read = program.spec(middle.op).kind, program.value_op[middle.value]
    where, made = program.where(middle.op), program.where(int(read))
    what = "a sum over the batch" if middle.value in plan.parts else "all of the batch"
    return BlockedError(
        f"{kind} needs {what} in the middle of the loop" + (f"  at {where}" if where else ""),
        why=f"it reads what {program.spec(int(read)).kind} leaves"
        + (f" at {made}" if made else "")
        + f", and the loop goes on with its result: that is {plan.loops} loops, and {loops} may be",
        hint=(again if may_loop_again else "")
        + "compute it for each microbatch alone (statistics over groups or features instead of the batch)",
    )
