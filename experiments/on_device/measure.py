"""Runs exported steps on the one device of a machine, which needs jax alone.

    python experiments/on_device/measure.py STEPS OUT SECONDS

Reads `NAME.bin` of the folder STEPS (see `export.py`), in order of their names; compiles several at once, while fewer
than 0.65 of SECONDS are over, then runs what is compiled alone, in turn. Writes OUT/measured.json after each
(seconds of a step, bytes that the compiler allocates, kernels with their seconds) and OUT/NAME.hlo.gz, its program.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.export  # not brought by `import jax`
import jax.numpy as jnp
import numpy as np

AT_ONCE = 8
REPEATS = 8
TRACED = 2


def main(steps: Path, out: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    found: dict[str, Any] = {"device": jax.devices()[0].device_kind, "jax": version("jax"), "steps": {}}
    for name, compiled in compiled_steps(sorted(steps.glob("*.bin")), deadline - 0.35 * seconds):
        if time.monotonic() > deadline:
            break
        try:
            (out / f"{name}.hlo.gz").write_bytes(gzip.compress(compiled[0].as_text().encode()))
            found["steps"][name] = measured(*compiled)
        except Exception as error:  # what the others measure is kept
            found["steps"][name] = {"failed": f"{type(error).__name__}: {error}"[:500]}
            traceback.print_exc(limit=1)
        print(name, found["steps"][name].get("step_s", "failed"), flush=True)
        (out / "measured.json").write_text(json.dumps(found) + "\n")


def compiled_steps(paths: list[Path], deadline: float) -> list[tuple[str, tuple[Any, Given]]]:
    """(name, (compiled step, its arguments)) of those that compile in time."""
    done = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        todo = {pool.submit(compiled_step, path): path.stem for path in paths}
        while todo and (left := deadline - time.monotonic()) > 0:
            ready: set[Future] = wait(todo, timeout=left, return_when=FIRST_COMPLETED).done
            for future in ready:
                name = todo.pop(future)
                if error := future.exception():
                    print(name, "does not compile:", str(error)[:300], flush=True)
                else:
                    done.append((name, future.result()))
        for future in todo:
            future.cancel()
        print(f"{len(done)} compiled, {len(todo)} left out", flush=True)
    order = {path.stem: i for i, path in enumerate(paths)}
    return sorted(done, key=lambda pair: order[pair[0]])


def compiled_step(path: Path) -> tuple[Any, Given]:
    """A step, compiled with the arguments that it may overwrite given away."""
    exported = jax.export.deserialize(bytearray(gzip.decompress(path.read_bytes())))
    beside = json.loads(path.with_suffix(".json").read_text())
    given = Given(exported.in_avals, beside["donated"], beside["states"])
    abstract = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in given.abstract]
    return jax.jit(exported.call, donate_argnums=tuple(given.donated)).lower(*abstract).compile(), given


def measured(compiled: Any, given: Given) -> dict[str, Any]:
    """Seconds, bytes and kernels of a step."""
    memory = compiled.memory_analysis()
    analysis = compiled.cost_analysis() or {}
    arguments = jax.block_until_ready(given.drawn())
    times = []
    while len(times) < REPEATS + 2 and sum(times) < 2:
        started = time.perf_counter()
        results = jax.block_until_ready(compiled(*arguments))
        times.append(time.perf_counter() - started)
        arguments = given.again(arguments, results)
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(TRACED):
                arguments = given.again(arguments, jax.block_until_ready(compiled(*arguments)))
        kernels = kernels_of(Path(folder))
    return {
        "step_s": float(np.median(times[min(2, len(times) - 1) :])),
        "fastest_s": min(times),
        "argument_bytes": memory.argument_size_in_bytes,
        "output_bytes": memory.output_size_in_bytes,
        "alias_bytes": memory.alias_size_in_bytes,
        "temp_bytes": memory.temp_size_in_bytes,
        "flop": analysis.get("flops", 0.0),
        "bytes_accessed": analysis.get("bytes accessed", 0.0),
        "kernels": kernels,
    }


@dataclass(frozen=True)
class Given:
    """Arguments of a step: which may be overwritten, and which are the state of an optimizer."""

    abstract: Any
    donated: list[int]
    states: list[int]

    def drawn(self) -> list[Any]:
        """Numbers that are not zero: small, and positive as second moments must be; whole numbers below 100."""
        return [jax.device_put(draw(a.shape, a.dtype, i in self.states)) for i, a in enumerate(self.abstract)]

    def again(self, arguments: list[Any], results: Any) -> list[Any]:
        """The arguments of the next step: for each that was given away the first result of its kind."""
        left = list(jax.tree.leaves(results))
        found = list(arguments)
        for i in self.donated:
            like = next(j for j, r in enumerate(left) if (r.shape, r.dtype) == (found[i].shape, found[i].dtype))
            found[i] = left.pop(like)
        return found


def draw(shape: tuple[int, ...], dtype: Any, positive: bool) -> np.ndarray:
    """From a few million random numbers, over and over."""
    return np.resize(pool(np.dtype(dtype), positive), shape)


@cache
def pool(dtype: np.dtype, positive: bool) -> np.ndarray:
    """4,194,301 numbers."""
    random = np.random.default_rng(0)
    if jnp.issubdtype(dtype, jnp.floating):
        numbers = random.normal(0, 0.02, 2**22 - 3)
        return (np.abs(numbers) if positive else numbers).astype(dtype)
    return random.integers(0, 2 if dtype.kind == "b" else 100, 2**22 - 3).astype(dtype)


def kernels_of(folder: Path) -> list[list[Any]]:
    """[hlo op, kernel, times a step, seconds a step] of what ran on the device, the longest first; copies in too."""
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0.0])
    for path in folder.rglob("*.xplane.pb"):
        for plane in jax.profiler.ProfileData.from_file(str(path)).planes:
            if not plane.name.startswith("/device:"):
                continue
            for line in plane.lines:
                if not line.name.startswith("Stream"):
                    continue
                for event in line.events:
                    op = next((value for key, value in event.stats if key == "hlo_op"), "")
                    entry = sums[str(op), event.name]
                    entry[0] += 1
                    entry[1] += event.duration_ns * 1e-9
    rows = [[op, kernel[:120], n / TRACED, s / TRACED] for (op, kernel), (n, s) in sums.items()]
    return sorted(rows, key=lambda row: -row[3])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
