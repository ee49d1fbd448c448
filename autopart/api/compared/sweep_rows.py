"""The rows of a sweep: a table, a Pareto front, the best, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autopart.api.plan.replay_tactic import Replay
from autopart.base.arguments import NONE, PATH, check
from autopart.base.errors import MeshError
from autopart.base.html import lines_html, table_html
from autopart.base.units import bytes_text, seconds_text
from autopart.base.written_file import write_text
from autopart.core.mesh import Mesh
from autopart.costmodel.flop_shares import percent


@dataclass(frozen=True)
class SweepRow:
    """What was found on one mesh.

    step_s, peak_bytes, fits   estimates of the best schedule; None where the mesh cannot be used
    searched                   False: given up after a part of the budget, because others were much better; what was
                               found until then, the named schedules at least, bounds what a whole search would find
    error                      why the mesh cannot be used
    batch_size, tokens         of a step, as `ap.sweep` was told, tokens else as the inputs say; None where nothing does
    utilization                MFU, 0 to 1; see `costmodel/utilization.py`
    price                      of a device and hour
    """

    mesh: Mesh
    step_s: float | None = None
    peak_bytes: float | None = None
    fits: bool | None = None
    score: float = float("inf")
    evaluations: int = 0
    searched: bool = False
    decisions: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    error: str = ""
    tactic: Replay | None = None
    batch_size: int | None = None
    tokens: int | None = None
    utilization: float | None = None
    price: float | None = None

    @property
    def tokens_per_s(self) -> float | None:
        """Of all devices together."""
        return self.tokens / self.step_s if self.tokens and self.step_s else None

    @property
    def price_per_mtoken(self) -> float | None:
        """What a million tokens cost, in the unit of the price."""
        if self.price is None or self.tokens_per_s is None:
            return None
        return self.price * self.mesh.size / 3600 / self.tokens_per_s * 1e6

    def plain(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "mesh": self.mesh.shape, "step_s": self.step_s, "peak_bytes": self.peak_bytes, "fits": self.fits,
            "evaluations": self.evaluations, "searched": self.searched, "decisions": list(self.decisions),
            "actions": list(self.actions), "error": self.error, "device": self.mesh.device,
            "batch_size": self.batch_size, "tokens": self.tokens, "tokens_per_s": self.tokens_per_s,
            "utilization": self.utilization, "price_per_mtoken": self.price_per_mtoken,
        }  # fmt: skip


@dataclass(frozen=True)
class Sweep:
    """The rows of a sweep, in the order of the meshes."""

    rows: tuple[SweepRow, ...]
    device: str | None

    @property
    def best(self) -> SweepRow:
        """The cheapest row that fits, for a token, where prices are known, else that of the smallest objective.

        Where none fits, it is the one that needs least memory.

        Raises `MeshError` where no mesh could be used.
        """
        usable = [r for r in self.rows if not r.error]
        if not usable:
            raise MeshError(
                "no mesh of the sweep could be used", why=self.note(self.rows[0]) if self.rows else "there is none"
            )
        fitting = [r for r in usable if r.fits]
        if fitting:
            prices = [r.price_per_mtoken for r in fitting]
            return fitting[prices.index(min(prices))] if None not in prices else min(fitting, key=_score)  # pyright: ignore
        return min(usable, key=lambda r: r.peak_bytes or 0.0)

    @property
    def pareto(self) -> tuple[SweepRow, ...]:
        """The rows that fit and that no other beats: in batch, in memory and in the seconds of a step."""
        fitting = [r for r in self.rows if r.fits]
        return tuple(r for r in fitting if not any(_beats(other, r) for other in fitting))

    def __str__(self) -> str:
        rows = self._table()
        widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
        return "\n".join([*lines, *self._remarks()])

    def _repr_html_(self) -> str:
        """For notebooks: a row per mesh."""
        header, *rows = self._table()
        return table_html(header, rows) + lines_html(self._remarks())

    def _remarks(self) -> list[str]:
        """What is to be said of all rows."""
        if any(row.fits for row in self.rows):
            return []
        usable = any(not row.error for row in self.rows)
        return ["none fits: the best is the one that needs least memory" if usable else "none could be used"]

    def _table(self) -> list[list[str]]:
        """The header and a row per mesh, without the columns that nobody knows anything for."""
        columns = {name: [cell(self, row) for row in self.rows] for name, cell in _COLUMNS.items()}
        there = {name: cells for name, cells in columns.items() if name in _ALWAYS or any(cells)}
        if len({row.mesh.device for row in self.rows}) < 2:
            there.pop("device", None)
        return [list(there), *(list(row) for row in zip(*there.values(), strict=True))]

    def note(self, row: SweepRow) -> str:
        """What is to be said of a row."""
        if row.error:
            return row.error.splitlines()[0]
        return "best" if row is self.best else "" if row.searched else "given up early"

    def to_csv(self, path: str | Path | None = None) -> str:
        """The table as CSV, in seconds and bytes, one column per axis; also written to `path`."""
        out = io.StringIO()
        axes = list(dict.fromkeys(a for r in self.rows for a in r.mesh.axis_names))
        writer = csv.writer(out, lineterminator="\n")
        names = ["step_s", "peak_bytes", "fits", "evaluations", "searched", "error", "device", "batch_size", "tokens",
                 "tokens_per_s", "utilization", "price_per_mtoken"]  # fmt: skip
        writer.writerow([*axes, *names])
        for r in self.rows:
            plain = r.plain()
            writer.writerow([*(r.mesh.shape.get(a, 1) for a in axes), *(plain[name] for name in names)])
        return _written(out.getvalue(), path)

    def to_json(self, path: str | Path | None = None) -> str:
        """Everything as JSON; also written to `path`."""
        data = {"device": self.device, "rows": [r.plain() for r in self.rows]}
        return _written(json.dumps(data, indent=1), path)

    def plot(self, path: str | Path) -> None:
        """Seconds against memory, a point per mesh, the device's memory as a line; needs matplotlib."""
        from autopart.api.compared.sweep_plot import write_plot

        check("Sweep.plot", path=(path, PATH))
        write_plot(self, path)


def _score(row: SweepRow) -> float:
    """The objective for a token, or for an example where the batch is all that is known."""
    return row.score / (row.tokens or row.batch_size or 1)


def _figures(row: SweepRow) -> tuple[float, float, float]:
    return row.step_s or 0.0, row.peak_bytes or 0.0, -(row.batch_size or 0)


def _beats(one: SweepRow, other: SweepRow) -> bool:
    mine, its = _figures(one), _figures(other)
    return mine != its and all(a <= b for a, b in zip(mine, its, strict=True))


def _step(sweep: Sweep, row: SweepRow) -> str:
    if row.step_s is None:
        return "-"
    return seconds_text(row.step_s) if row.searched else f"<= {seconds_text(row.step_s)}"


_COLUMNS: Mapping[str, Callable[[Sweep, SweepRow], str]] = {
    "device": lambda _, row: row.mesh.device or "",
    "batch": lambda _, row: "" if row.batch_size is None else str(row.batch_size),
    "mesh": lambda _, row: str(row.mesh),
    "step": _step,
    "peak": lambda _, row: "-" if row.peak_bytes is None else bytes_text(row.peak_bytes),
    "fits": lambda _, row: "-" if row.fits is None else "yes" if row.fits else "no",
    "MFU": lambda _, row: percent(row.utilization) if row.utilization else "",
    "tokens/s": lambda _, row: "" if row.tokens_per_s is None else f"{row.tokens_per_s:,.0f}",
    "$/Mtoken": lambda _, row: "" if row.price_per_mtoken is None else f"{row.price_per_mtoken:.3g}",
    "evaluations": lambda _, row: "-" if row.error else str(row.evaluations),
    "": lambda sweep, row: sweep.note(row),
}
"""Columns of the table; a column with nothing in it is left out, unless it is one of `_ALWAYS`."""

_ALWAYS = ("mesh", "step", "peak", "fits", "evaluations", "")


def _written(text: str, path: str | Path | None) -> str:
    check("Sweep", path=(path, PATH | NONE))
    if path is not None:
        write_text(path, text, "the sweep")
    return text
