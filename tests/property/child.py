"""Runs batches in a process of its own, so that a crash ends the process and not the measurement.

    python -m tests.property.child batches 0 1 2     three batches, one after the other
    python -m tests.property.child program 1234      one program alone, on its batch's mesh
    python -m tests.property.child plain 1234        the same with jax.jit alone, to see whether that fails too

Prints a line of JSON when a batch starts and one when it ends:
{"batch": 0, "findings": [[seed, kind, message, excepted]]}.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

if __name__ == "__main__":
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0 --xla_force_host_platform_device_count=8"

import jax

from tests.property.batches import PROGRAMS_PER_MODULE, Batch, Finding, run_batch

JAX_RAISES = "jax.jit of the unpartitioned program raises"
Row = tuple[int, str, str, str]
"""Seed, "mismatch" or "error", message, the reason why it is excepted or ""."""


def main(mode: str, numbers: list[int]) -> None:
    """Runs what the command line names."""
    if mode == "plain":
        plain(alone(numbers[0]))
        return
    for number in numbers:
        say({"batch": number, "starts": True})
        rows = rows_of_program(number) if mode == "program" else rows_of_batch(Batch.numbered(number, by_hand=True))
        say({"batch": number, "findings": rows})


def say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


def rows_of_batch(batch: Batch) -> list[Row]:
    """The findings of a batch. Where all of it raises, each program runs alone, to see which does."""
    found, error = outcome(lambda: run_batch(batch, batch.schedule()))
    if error is None:
        return [row(f) for f in found]
    rows = [r for p in batch.programs for r in rows_of_program(p.seed)]
    return rows or [(batch.programs[0].seed, "error", f"the batch, but no program alone: {text(error)}", "")]


def rows_of_program(seed: int) -> list[Row]:
    """The findings of one program alone."""
    batch = alone(seed)
    found, error = outcome(lambda: run_batch(batch, batch.schedule()))
    if error is None:
        return [row(f) for f in found]
    _, plain_error = outcome(lambda: plain(batch))
    return [(seed, "error", text(error), JAX_RAISES if plain_error is not None else "")]


def alone(seed: int) -> Batch:
    batch = Batch.numbered(seed // PROGRAMS_PER_MODULE, by_hand=True)
    return Batch((batch.programs[seed % PROGRAMS_PER_MODULE],), batch.mesh)


def plain(batch: Batch) -> None:
    """Runs the programs unpartitioned, with all that they compute, whether it is used or not."""
    jax.block_until_ready(jax.jit(batch.__call__, keep_unused=True)(batch.inputs()))


def outcome(work: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """What the work returned, or what it raised: either is a result here."""
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work)
        error = done.exception()
        return (None, error) if error is not None else (done.result(), None)


def row(finding: Finding) -> Row:
    return finding.seed, "mismatch", finding.message, finding.excepted


def text(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:500]}"


if __name__ == "__main__":
    main(sys.argv[1], [int(n) for n in sys.argv[2:]])
