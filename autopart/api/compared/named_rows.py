"""Named schedules with their costs: the rows of `ap.named_schedules`, of a report, and how they are costed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from autopart.api.programs.tried_programs import NamedOnly
from autopart.api.tactics.parallelism import Parallelism
from autopart.api.tactics.tactic import Tactic, TacticContext, actions_of
from autopart.base.errors import UnknownNameError, closest
from autopart.base.html import table_html
from autopart.base.units import bytes_text, seconds_text
from autopart.core.table.partitioning import Partitioning
from autopart.costmodel.cost_models import cost_model_of
from autopart.costmodel.estimate import CostModel
from autopart.search.baselines import MOST
from autopart.search.budget import Budget
from autopart.search.comparison import row_text
from autopart.search.search import Search, search
from autopart.search.space.several_axes import REPLICATED
from autopart.spmd.device_local import LoweringOptions


@dataclass(frozen=True)
class NamedSchedule:
    """A named schedule with its costs.

    step_s, peak_bytes   estimates for one device
    fits                 whether the peak is within the device's memory
    """

    name: str
    step_s: float
    peak_bytes: float
    fits: bool

    @property
    def schedule(self) -> list[Parallelism]:
        """For `ap.jit`: one tactic, none for the replicated program."""
        return [] if self.name == REPLICATED else [Parallelism(self.name)]


@dataclass(frozen=True)
class NamedSchedules(Sequence[NamedSchedule]):
    """Named schedules, the best first: by memory that is missing, then by seconds. Found by place, or by name."""

    rows: tuple[NamedSchedule, ...]

    @property
    def best(self) -> NamedSchedule:
        """The fastest that fits; where none does, the one that comes nearest."""
        return self.rows[0]

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return self.rows[key]
        named = {row.name: row for row in self.rows}
        if key not in named:
            raise UnknownNameError(f'no named schedule of the program is "{key}"', hint=closest(key, list(named)))
        return named[key]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[NamedSchedule]:
        return iter(self.rows)

    def _repr_html_(self) -> str:
        """For notebooks: a row per schedule."""
        cells = (
            [r.name, seconds_text(r.step_s), bytes_text(r.peak_bytes), "yes" if r.fits else "no"] for r in self.rows
        )
        return table_html(["schedule", "step", "peak", "fits"], cells)

    def __str__(self) -> str:
        width = max(len(row.name) for row in self.rows)
        return "\n".join(row_text(vars(row), width) for row in self.rows)


def costed_schedules(
    start: Partitioning, given: Sequence[Tactic] = (), cost_model: str | CostModel | None = None,
    options: LoweringOptions = LoweringOptions(),
) -> NamedSchedules:  # fmt: skip
    """The named schedules from a state, after what is `given`. A lowering each, of at most 64."""
    price = cost_model_of(cost_model)
    wanted = Search(
        axes=start.mesh.axis_names, optimizer=NamedOnly(), budget=Budget(MOST), cost_model=price, options=options,
        cache=False,
    )  # fmt: skip
    actions_of(start, given, TacticContext(options, price))
    rows = sorted(search(start, wanted).report["baselines"], key=lambda row: row["rank"])
    return NamedSchedules(tuple(NamedSchedule(r["name"], r["step_s"], r["peak_bytes"], r["fits"]) for r in rows))
