"""What each rule of the simulator brings: the headline with one of them left out at a time.

    python -m experiments.simulator_accuracy.left_out           all, an hour on one core; the table of README.md
    python -m experiments.simulator_accuracy.left_out gated     those whose name contains the word

A rule that changes the compute or memory of fewer than three programs by a hundredth, and no regret, is none to keep.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
import numpy as np

from autopart.costmodel import estimate
from autopart.costmodel.compiled import program_arrays
from autopart.costmodel.compiled.facts import op_classes
from autopart.costmodel.compiled.layout_assignment import assignment, transfers
from autopart.costmodel.hardware import links
from autopart.costmodel.hardware.devices import device
from autopart.costmodel.hardware.links import mesh_links
from autopart.spmd.device_local import DeviceLocal
from experiments.simulator_accuracy.__main__ import written
from experiments.simulator_accuracy.headline import headline
from experiments.simulator_accuracy.outside_pairs import all_pairs
from experiments.simulator_accuracy.referee import KEPT

CHANGED = 0.01


@contextmanager
def _devices(**changes: Any) -> Generator[None]:
    """Every device with other entries."""
    mesh_links.cache_clear()
    with patch.object(links, "device", lambda name: replace(device(name), **changes)):
        yield
    mesh_links.cache_clear()


def _compiler(**changes: bool) -> AbstractContextManager[object]:
    return _devices(around_matmul=replace(device("tpu_v3").around_matmul, **changes))


def _nothing(module: Any, name: str) -> AbstractContextManager[object]:
    """A fact of which nothing is so."""
    found = getattr(module, name)

    def none(*args: Any) -> Any:
        return jax.tree.map(lambda column: np.zeros_like(column), found(*args))

    return patch.object(module, name, none)


@contextmanager
def _never(name: str) -> Generator[None]:
    """A condition on an op that never holds."""
    with patch.object(op_classes, name, lambda *_: False), patch.object(transfers, name, lambda *_: False):
        yield


RULES: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "ops that join a product (multi-output fusion)": lambda: _compiler(joins_results=False),
    "bf16 copies of what products read": lambda: _compiler(narrows_operands=False),
    "updates beside transposed collectives": lambda: _compiler(copies_updates=False),
    "memory on the chip": lambda: _devices(assigns_on_chip=False),
    "layout tiles": lambda: _devices(layout_tile=(1, 1)),
    "copies that change the lanes": lambda: _devices(turned_per_s=1e18),
    "numbers spread along lanes": lambda: _devices(spreads_per_s=None),
    "lone reductions and elementwise ops": lambda: _devices(alone_per_s=None),
    "f32 through the vector unit": lambda: _devices(fed_at_hbm_rate=False),
    "units in turn (v3)": lambda: _devices(units_in_turn=False),
    "what nothing hides": lambda: _devices(unhidden_share=0.0),
    "one stream of HBM (v3)": lambda: _devices(stream_share=1.0),
    "rows of the matrix unit": lambda: _devices(matmul_tile=(1, 128, 128)),
    "columns side by side": lambda: _devices(columns_together=True),
    "collectives combined": lambda: _devices(combine_bytes=0.0),
    "products that are sums": lambda: _never("is_summed"),
    "stacks as they are allocated": lambda: _nothing(program_arrays, "filled_stacks"),
    "arrays cut into parts": lambda: _nothing(program_arrays, "cut_arrays"),
    "behind reshapes": lambda: _nothing(program_arrays, "behind_reshapes"),
    "rows of a softmax": lambda: _nothing(program_arrays, "softmax_rows"),
    "results spread over many": lambda: _nothing(program_arrays, "spread_results"),
    "tables as they are stored": lambda: patch.object(assignment, "table_gradients", lambda _: []),
    "looked up and computed": lambda: _nothing(program_arrays, "_looked_up"),
}


def _rows(kept: dict[str, Any], locals_: list[tuple[str, str, DeviceLocal]]) -> list[dict[str, Any]]:
    found = []
    for name, model, local in locals_:
        ours, theirs = estimate(local), kept[name]
        found.append(
            {
                "model": model,
                "peak_bytes": ours.peak_bytes,
                "compiler_peak_bytes": theirs["peak_bytes"],
                "hbm_bytes": device(ours.device).hbm_bytes,
                "compute_s": ours.compute_s,
                "compiler_compute_s": theirs["compute_s"],
                "step_s": ours.serial_s,
                "compiler_step_s": theirs["compute_s"] + ours.collective_s,
            }
        )
    return found


def _changed(rows: list[dict[str, Any]], whole: list[dict[str, Any]]) -> int:
    """Of how many programs compute or memory differs."""
    return len(
        {
            row["model"]
            for row, was in zip(rows, whole, strict=True)
            if any(abs(row[of] / was[of] - 1) > CHANGED for of in ("compute_s", "peak_bytes"))
        }
    )


def _line(rule: str, rows: list[dict[str, Any]], changed: str) -> str:
    f = headline(rows)
    return (
        f"| {rule} | {f['regret_mean']:.2%} | {f['regret_most']:.1%} | {f['ordered']:.1%} | {f['fits']:.1%} "
        f"| {f['compute_within']:.1%} | {f['compute_off']:.3f} | {f['memory_off']:.3f} | {changed} |"
    )


def main() -> None:
    kept = json.loads(KEPT.read_text())["pairs"]
    pairs = [pair for pair in all_pairs() if pair.name in kept]
    locals_ = [(pair.name, pair.model, pair.lower().program) for pair in pairs]
    whole = _rows(kept, locals_)
    lines = [
        "| left out | regret | most | order | fits | within | compute | memory | programs changed |",
        "|---|---|---|---|---|---|---|---|---|",
        _line("nothing", whole, ""),
    ]
    for rule, left_out in RULES.items():
        if all(word in rule for word in sys.argv[1:]):
            with left_out():
                rows = _rows(kept, locals_)
            lines.append(_line(rule, rows, str(_changed(rows, whole))))
            print(lines[-1], flush=True)
    if not sys.argv[1:]:
        page = Path(__file__).with_name("README.md")
        page.write_text(written(page.read_text(), left_out="\n".join(lines)))


if __name__ == "__main__":
    main()
