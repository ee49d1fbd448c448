"""Thousands of random programs, in child processes whose death is a result.

batches 0..499  ->  children of 10 batches each, `workers` at a time
child dies in batch 7, or is silent for too long  ->  its ten programs, each in a process of its own
                                                 ->  seeds that die; excepted where jax.jit alone dies too
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import IO, Any

PROGRAMS_PER_BATCH = 10
BATCHES_PER_CHILD = 10
JAX_DIES = "jax.jit of the unpartitioned program ends the process too"


@dataclass(frozen=True)
class Result:
    """One program that is not as it should be.

    kind       "mismatch", "error" (something was raised), "crash" (the process ended) or "timeout"
    excepted   why it is not a failure of partitioning; empty if it is one
    """

    seed: int
    kind: str
    message: str
    excepted: str


def run(cases: int, workers: int, seconds_per_batch: float) -> dict[str, Any]:
    """Runs batches of random programs; returns counts and every result, as plain values."""
    start = time.monotonic()
    numbers = range(-(-cases // PROGRAMS_PER_BATCH))
    chunks = [numbers[i : i + BATCHES_PER_CHILD] for i in range(0, len(numbers), BATCHES_PER_CHILD)]
    with ThreadPoolExecutor(workers) as pool:
        found = [r for part in pool.map(lambda c: list(run_chunk(c, seconds_per_batch)), chunks) for r in part]
    return counted(found, len(numbers) * PROGRAMS_PER_BATCH, workers, (time.monotonic() - start) / 60)


def run_again(last: dict[str, Any], seconds_per_batch: float) -> dict[str, Any]:
    """Runs the batches of the failures of the last campaign once more, after a mend; what it says of others stays."""
    batches = sorted({row["seed"] // PROGRAMS_PER_BATCH for row in last["failures"]})
    known = [Result(**row) for row in last["failures"] + last["exceptions"]]
    kept = [result for result in known if result.seed // PROGRAMS_PER_BATCH not in batches]
    found = [*kept, *run_chunk(batches, seconds_per_batch)]
    figures = counted(sorted(found, key=lambda result: result.seed), last["cases"], last["workers"], last["minutes"])
    return {**figures, "again": sorted({*last.get("again", ()), *(row["seed"] for row in last["failures"])})}


def counted(found: Sequence[Result], cases: int, workers: int, minutes: float) -> dict[str, Any]:
    """The figures of a campaign, and its results."""
    failures = [r for r in found if not r.excepted]
    return {
        "cases": cases,
        "mismatches": sum(r.kind == "mismatch" for r in failures),
        "errors": sum(r.kind == "error" for r in failures),
        "crashes": sum(r.kind == "crash" for r in failures),
        "timeouts": sum(r.kind == "timeout" for r in failures),
        "excepted": sum(bool(r.excepted) for r in found),
        "minutes": round(minutes, 1),
        "workers": workers,
        "failures": [asdict(r) for r in failures],
        "exceptions": [asdict(r) for r in found if r.excepted],
    }


NOTHING = counted([], 0, 0, 0.0)
"""The figures before any campaign."""


def run_chunk(batches: Sequence[int], seconds_per_batch: float) -> Iterator[Result]:
    """The results of some batches, in as many children as it takes."""
    left = list(batches)
    while left:
        done, rows, kind = run_child("batches", left, seconds_per_batch)
        yield from rows
        if kind:
            yield from run_alone(left[done], seconds_per_batch, kind)
            done += 1
        print(f"  batches {left[0]} to {left[done - 1]}: done", flush=True)
        left = left[done:]


def run_alone(batch: int, seconds: float, kind: str) -> Iterator[Result]:
    """The programs of a batch that ended its process, each in a process of its own."""
    first, any_found = batch * PROGRAMS_PER_BATCH, False
    for seed in range(first, first + PROGRAMS_PER_BATCH):
        _, rows, how = run_child("program", [seed], seconds)
        if how:
            _, _, plain = run_child("plain", [seed], seconds)
            rows = [*rows, Result(seed, how, "", JAX_DIES if plain else "")]
        any_found = any_found or bool(rows)
        yield from rows
    if not any_found:
        yield Result(first, kind, f"batch {batch}, but none of its programs alone", "")


def run_child(mode: str, numbers: Sequence[int], seconds: float) -> tuple[int, list[Result], str]:
    """(how many were done, their results, "" or how the child ended early: "crash" or "timeout")."""
    command = command_of(mode, numbers)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        lines: queue.Queue[str | None] = queue.Queue()
        reader = threading.Thread(target=_read, args=(child.stdout, lines))
        reader.start()
        said, silent = _until_silent(lines, seconds)
        if silent:
            child.kill()
        reader.join()
    ended = [json.loads(line)["findings"] for line in said if "findings" in line]
    rows = [Result(*row) for findings in ended for row in findings]
    return len(ended), rows, "timeout" if silent else "crash" if child.returncode else ""


def _until_silent(lines: queue.Queue[str | None], seconds: float) -> tuple[list[str], bool]:
    """The lines up to the end, or up to a silence of so many seconds; whether it was that."""
    said: list[str] = []
    try:
        while (line := lines.get(timeout=seconds)) is not None:
            said.append(line)
    except queue.Empty:
        return said, True
    return said, False


def command_of(mode: str, numbers: Sequence[int]) -> list[str]:
    """The command line of a child."""
    return [sys.executable, "-m", "tests.property.child", mode, *map(str, numbers)]


def _read(stream: IO[str], lines: queue.Queue[str | None]) -> None:
    for line in stream:
        if line.startswith("{"):
            lines.put(line)
    lines.put(None)
