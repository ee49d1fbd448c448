"""How close a search over programs comes to trying everything, at several limits of memory.

    program      every subset of groups of results kept beside "blocks", and every policy, times microbatches
    tiling       every state that the named schedules of a search reach on each of these programs
    limit        between the least that any of them needs (0) and what the fastest needs (1), by equal factors

For each limit the fastest of all that fits is compared with what `ap.AutomaticPartition(microbatch=, recompute=True)`
finds on a device with so much memory.
"""

from __future__ import annotations

import itertools
import json
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import autopart as ap
from autopart.api.programs.kept_results import kept_instead
from autopart.api.programs.kept_subsets import ROOM
from autopart.api.programs.rewritings import Rewriting, batch_inputs
from autopart.api.programs.tried_programs import Setting, named_only
from autopart.api.tracing.trace import Traced
from autopart.costmodel.hardware.devices import device, register_device
from experiments.fitting import model
from experiments.models import t32, unet
from experiments.models.outside import moe

KEPT = Path(__file__).with_name("limits.json")
STEPS = (1, 4)
GROUPS = 5
PLACES = (0.05, 0.3, 0.55, 0.8)
"""Where the limits lie between the least and the most bytes."""

BUDGET = ap.Budget(100)
SHAPE = {"data": 4, "model": 2}


@dataclass(frozen=True)
class Case:
    """A training step with its abstract arguments, state first."""

    name: str
    build: Callable[[], tuple[Callable[..., Any], Sequence[Any]]]


def _moe() -> tuple[Callable[..., Any], Sequence[Any]]:
    made = moe.training(layers=2, batch=1024)
    return made.step, made.args


_T32 = replace(t32.Config(), layers=4, batch=128)
_UNET = replace(unet.Config(), levels=3, blocks=1, batch=256)
CASES = [
    Case("7 B in a scan", lambda: (model.step(), model.abstract_args(model.Config()))),
    Case("T32 of 4 layers", lambda: (t32.step(_T32), t32.abstract_args(_T32))),
    Case("UNet of 3 levels", lambda: (unet.step(_UNET), unet.abstract_args(_UNET))),
    Case("MoE of 2 layers", _moe),
]

State = tuple[float, float, str]
"""(step seconds, peak bytes, the program) of one tiling of one program."""


def programs(traced: Traced, mesh: ap.Mesh) -> Iterator[Rewriting]:
    """Every policy and every subset of groups beside "blocks", for each number of microbatches."""
    inputs = batch_inputs(traced.program, [k for k in STEPS if k > 1])
    for k in STEPS:
        loop = None if k == 1 else ap.Microbatch(inputs, k)
        whole = Rewriting(loop, None).of(traced).program
        blocks = Rewriting(loop, ap.Recompute("blocks")).of(traced).program
        groups = [group.policy for group in kept_instead(whole, blocks, mesh, k)[:GROUPS]]
        yield from (Rewriting(loop, None), Rewriting(loop, ap.Recompute("matmuls")))
        for size in range(len(groups) + 1):
            for kept in itertools.combinations(groups, size):
                yield Rewriting(loop, ap.Recompute(["blocks", *kept]))


def states(case: Case, mesh: ap.Mesh) -> Iterator[State]:
    """Every tiling of every program."""
    step, args = case.build()
    jitted = ap.jit(step, mesh, [], donate_argnums=(0, 1))
    traced = jitted.traced(tuple(args), {})
    auto = ap.AutomaticPartition(list(SHAPE), budget=ap.Budget(64), cache=False)
    setting = Setting(mesh, (auto,), ap.LoweringOptions(), None, False, jitted.given)
    for rewriting in programs(traced, mesh):
        with tempfile.TemporaryDirectory() as folder:
            records = Path(folder) / "records"
            setting.run_with(rewriting.of(traced), replace(named_only(auto), records=records), 0, False)
            for line in records.read_text().splitlines()[1:]:
                for state in json.loads(line)["states"]:
                    yield state["cost"][0], state["cost"][1], str(rewriting) or "as it is"


def with_memory(name: str, hbm_bytes: float) -> ap.Mesh:
    """The mesh on a device like `name` with another memory."""
    known = f"{name} with {hbm_bytes / 1e9:.2f} GB"
    register_device(replace(device(name), name=known, hbm_bytes=hbm_bytes, source="as it is, with another memory"))
    return ap.Mesh(SHAPE, device=known)


def found(case: Case, mesh: ap.Mesh) -> dict[str, Any]:
    """What a search over programs finds on a mesh."""
    step, args = case.build()
    auto = ap.AutomaticPartition(list(SHAPE), budget=BUDGET, microbatch=STEPS, recompute=True, cache=False)
    began = time.process_time()
    lowered = ap.jit(step, mesh, [auto], donate_argnums=(0, 1)).lower(*args)
    estimate, report = lowered.estimate, lowered.metadata.tactics[0].report
    assert estimate is not None
    figures = {"step_s": estimate.step_s, "peak_bytes": estimate.peak_bytes, "fits": estimate.fits}
    return {**figures, "program": report["program"], "cpu_s": round(time.process_time() - began, 1)}


def best(tried: Sequence[State], limit: float, room: float = 1.0) -> State | None:
    """The fastest that fits; what keeps groups within a share of the memory."""
    fitting = [s for s in tried if s[1] <= limit * (room if "ap.Recompute([" in s[2] else 1.0)]
    return min(fitting, default=None)


def measured(case: Case) -> dict[str, Any]:
    """For each limit, what is best of all and what a search finds."""
    mesh = ap.Mesh(SHAPE, device="a100_40gb")
    began = time.process_time()
    tried = list(states(case, mesh))
    spent = round(time.process_time() - began, 1)
    least, most = min(s[1] for s in tried), min(tried)[1]
    rows = []
    for place in PLACES:
        limit = least * (most / least) ** place
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ap.SearchWarning)
            row = {"limit": limit, "found": found(case, with_memory("a100_40gb", limit))}
        rows.append({**row, "best": best(tried, limit), "best within the room": best(tried, limit, ROOM)})
        print(line(rows[-1]), flush=True)
    return {"states": len(tried), "cpu_s": spent, "limits": rows}


def line(row: dict[str, Any]) -> str:
    """One limit as a row of a table."""
    ours = row["found"]
    cells = [f"{row['limit'] / 1e9:.1f}", f"{ours['step_s']:.3f}" if ours["fits"] else "none"]
    for of in ("best within the room", "best"):
        known = row[of]
        cells.append("none" if known is None else f"{known[0]:.3f}, {ours['step_s'] / known[0]:.3f}")
    return "| " + " | ".join([*cells, ours["program"], row["best"][2] if row["best"] else ""]) + " |"


def main(names: Sequence[str]) -> None:
    """Measures the cases whose names hold one of `names`, all without any."""
    for case in CASES:
        if not names or any(name in case.name for name in names):
            print(case.name, flush=True)
            row = measured(case)
            kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
            KEPT.write_text(json.dumps({**kept, case.name: row}, indent=1) + "\n")
