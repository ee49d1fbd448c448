"""Runs rows of the table, each in a process of its own, and keeps how they ended.

lowers               under all schedules
passes left out      it lowers, but a pass of autopart failed on the way
error                autopart raised; the text has the line
over, died           the process took longer than it may, or was ended by a signal; the text has the stage
refused by jax too   autopart raised, and so does `jax.jit(f).trace(..).lower(..)` for that platform, which is not there
no model             the package itself does not build the step, beside the jax that is installed
not installed, not run yet
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.kept import write
from experiments.strangers.install import ROOT, python
from experiments.strangers.step import table

RESULTS = Path(__file__).with_name("results.json")
DEVICES = ("tpu_v5e", "h100")
SURROUNDINGS = {
    "PYTHONPATH": str(ROOT),
    "JAX_PLATFORMS": "cpu",
    "KERAS_BACKEND": "jax",
    "HF_HUB_OFFLINE": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
FAULTS = ("passes left out", "error", "over", "died")


def run_row(name: str, device: str, limit_s: int) -> dict[str, Any]:
    """The stages of a row and how it ended."""
    command = [python(), "-W", "ignore", "-m", "experiments.strangers.process", name, device]

    def at_most() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 5))

    with tempfile.TemporaryDirectory() as elsewhere:  # some packages leave logs where they are
        ended = subprocess.run(
            command,
            cwd=elsewhere,
            env=os.environ | SURROUNDINGS,
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=at_most,
        )
    stages = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith('{"stage": ')]
    return summary(stages, ended.returncode, ended.stderr)


def summary(stages: list[dict[str, Any]], returncode: int, stderr: str) -> dict[str, Any]:
    """How a row ended, and the figures of its stages."""
    done = {s.pop("stage"): s for s in stages}
    last = next(reversed(done), "start")
    said = done.get(last, {})
    row: dict[str, Any] = {"stages": done}
    if "missing" in said:
        return {"ended": "not installed", "text": " ".join(said["missing"])}
    if "error" in said:
        by_jax = done.get("jax", {}).get("refused")
        ended = "no model" if last == "built" else "refused by jax too" if by_jax else "error"
        elsewhere = "; jax lowers it for the CPU" if done.get("jax", {}).get("lowers_for_cpu") else ""
        return row | {"ended": ended, "text": f"{last}: {said['error']}" + elsewhere}
    if returncode:
        over = returncode in (-signal.SIGXCPU, -signal.SIGKILL)
        text = f"after {last}" + ("" if over else f": {' '.join(stderr.split())[-400:]}")
        return row | {"ended": "over" if over else "died", "text": text}
    left_out = [text for s in done.values() for text in s.get("left_out", ())]
    return row | ({"ended": "passes left out", "text": " ".join(left_out)} if left_out else {"ended": "lowers"})


@dataclass
class Kept:
    """What `results.json` holds: name -> device -> row."""

    rows: dict[str, dict[str, dict[str, Any]]]

    @staticmethod
    def read() -> Kept:
        """What was kept last; rows that are no longer in the table are left out."""
        kept = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else {}
        return Kept({name: kept.get(name, {}) for name in sorted(table())})

    def names(self, only: str) -> list[str]:
        """Rows whose name contains a text."""
        return [name for name in self.rows if only in name]

    def ran(self, name: str, device: str) -> bool:
        """True if a row has a result that an installation would not change."""
        return self.rows[name].get(device, {"ended": "not installed"})["ended"] != "not installed"

    def add(self, name: str, device: str, row: dict[str, Any]) -> None:
        """Keeps a row, at once, beside what another process may have kept since."""
        self.rows = Kept.read().rows
        self.rows[name][device] = row
        write(RESULTS, {"rows": self.rows})

    def faults(self) -> list[str]:
        """Rows that contradict the claim."""
        return [name for name, on in self.rows.items() if any(row["ended"] in FAULTS for row in on.values())]
