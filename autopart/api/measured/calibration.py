"""A device entry measured on the devices that are there: a few minutes of products, copies and collectives.

    found = ap.calibrate("mine.json")          products, streams and collectives, all devices at work at once
    print(found)                               what was measured beside what the entry says of it
    mesh = ap.Mesh({"data": 8}, device="mine.json")
    print(ap.calibrate(trace="profile", of=lowered))        a profile of a step beside its estimate (`profile.py`)

    product       launch + flop / rate, or bytes / rate of memory if that is longer
    stream        launch + bytes / rate of memory
    tanh chain    launch + flop / rate of the vector unit
    collective    launch + steps * s + wire / W + local / C, over 2, 4, ... and all devices      `CollectiveCurve`

Each figure is the median of `REPEATS` runs. Fits are non-negative least squares of relative errors; their residuals
stand in the file, and estimates are no better than they are.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from autopart.api.jitted.lowered import Lowered
from autopart.api.measured.profile import Profile
from autopart.base.arguments import NONE, PATH, STRING, check, instance, number
from autopart.costmodel.hardware.device_file import write_device
from autopart.costmodel.hardware.devices import device, devices
from autopart.costmodel.hardware.fabric import CollectiveCurve, Switch

REPEATS = 7
CHAIN = 4
"""Ops of a kind in a row in each run, so that a run is longer than what starting it takes."""

LONG_S = 0.03
"""A run that takes longer is the last of its kind."""

SIDES = (128, 256, 512, 1024, 2048, 4096, 8192)
"""Of square products."""

STREAM_BYTES = tuple(4**n * 2**14 for n in range(9))
MOVED_BYTES = tuple(4**n * 2**12 for n in range(9))
"""On each device; of collectives, before or after, whichever is more."""

WITHIN = 90
"""Residuals are the relative error that so many per cent of the points are within."""


class Point(NamedTuple):
    """One figure: what, of which size, how long it took and by the entry takes, in seconds."""

    what: str
    size: float
    measured_s: float
    fitted_s: float


@dataclass(frozen=True)
class Calibration:
    """What `calibrate` found: the file, its points, and by kind the relative error that nine of ten are within."""

    path: Path
    points: tuple[Point, ...]
    residuals: dict[str, float]

    def __str__(self) -> str:
        lines = [f"{kind}: within {error:.0%} on 9 of 10" for kind, error in self.residuals.items()]
        rows = [f"{p.what:<24} {p.size:>12.4g} {p.measured_s:>10.3g} s {p.fitted_s:>10.3g} s" for p in self.points]
        return "\n".join([f"{self.path}", *lines, *rows])


@overload
def calibrate(path: str | Path, *, like: str | None = ..., seconds: float = ...) -> Calibration: ...


@overload
def calibrate(*, trace: str | Path, of: Lowered) -> Profile: ...


def calibrate(
    path: str | Path | None = None, *, like: str | None = None, seconds: float = 120.0,
    trace: str | Path | None = None, of: Lowered | None = None,
) -> Calibration | Profile:  # fmt: skip
    """Measures jax's devices for about `seconds`, and writes what they can do to `path`, for `Mesh(device=...)`.

    `like` names the registered device whose other figures hold: memory, compiler, network; by default the one that jax
    says it is, or "cpu_host". Raises `ArgumentError` where the file cannot be written.

    With `trace`, the folder of a profile by `jax.profiler.trace`, nothing is measured: the profile is put beside the
    estimate of the lowered program `of`. Raises `ArgumentError` where it has no run of this program.
    """
    if trace is not None:
        check("calibrate", path=(path, NONE), of=(of, instance("what ap.jit(...).lower(...) returns", Lowered)))
        return cast(Lowered, of).profile(trace)
    check("calibrate", path=(path, PATH), like=(like, STRING | NONE), seconds=(seconds, number(0)), of=(of, NONE))
    path = cast("str | Path", path)
    there = jax.devices()
    bench = _Bench(there, time.monotonic() + seconds)
    base = device(like or _kind_of(there[0]))
    streams = bench.rows("stream", STREAM_BYTES, _add_one, lambda n: 2 * n * CHAIN, 4, 1)
    (launch_s, byte_s), points = _fit([[CHAIN, moved] for _, moved, _ in streams], streams)
    chains = bench.rows("tanh chain", STREAM_BYTES, _tanhs, lambda n: 2 * 8 * n / 4 * CHAIN, 4, 1)
    (_, vector_s), found = _fit([[CHAIN, flop] for _, flop, _ in chains], chains)
    points += found
    measured: dict[str, Any] = {
        "hbm_bytes_per_s": 1 / byte_s, "launch_s": max(launch_s, 1e-9), "vector_flop_per_s": 1 / vector_s,
    }  # fmt: skip
    rates, launches = {}, []
    for dtype, type_ in {"f32": jnp.float32, "bf16": jnp.bfloat16}.items():
        rows = bench.rows(f"product {dtype}", SIDES, _products, lambda n: 2.0 * n**3 * CHAIN, type_, 2)
        (each_s, flop_s), found = _fit([[CHAIN, flop] for _, flop, _ in rows], rows)
        rates[dtype], points = 1 / flop_s, points + found
        launches.append(each_s)
    measured |= {"peak_flop_per_s": {**base.peak_flop_per_s, **rates}, "matmul_launch_s": max(*launches, 1e-9)}
    curves, found = bench.curves()
    points += found
    switch = _switch_of(len(there), curves) if curves else None
    residuals = {kind: _residual([p for p in points if p.what.split(" ")[0] == kind]) for kind in
                 dict.fromkeys(p.what.split(" ")[0] for p in points)}  # fmt: skip
    source = f"ap.calibrate on {len(there)} x {there[0].device_kind}, jax {jax.__version__}"
    written = write_device(path, Path(path).stem, base.name, measured, switch, source, residuals)
    return Calibration(written, tuple(points), residuals)


def _kind_of(one: Any) -> str:
    """The registered device that a device of jax's is, by its kind; "cpu_host" for none."""
    kind = one.device_kind.lower().replace(" ", "_")
    named = [name for name in devices() if all(part in kind for part in name.replace("gb", "").split("_"))]
    return max(named, key=len) if named else "cpu_host"


def _add_one(x: jax.Array) -> jax.Array:
    return x + 1


def _tanhs(x: jax.Array) -> jax.Array:
    for _ in range(8):
        x = jnp.tanh(x)
    return x


def _products(x: jax.Array) -> jax.Array:
    return x @ x


Row = tuple[float, float, float]
"""Size, work of a run, seconds."""


@dataclass(frozen=True)
class _Bench:
    """Runs on all devices at once, until `until`; `points` longer than that are left out."""

    devices: Sequence[Any]
    until: float

    def rows(
        self, what: str, sizes: Sequence[int], op: Callable[[jax.Array], jax.Array], work: Callable[[float], float],
        of: Any, rank: int,
    ) -> list[tuple[str, float, float]]:  # fmt: skip
        """(what and size, work, seconds) of `CHAIN` kernels in a row, on an array of each size by device."""
        found, count = [], len(self.devices)
        mesh = jax.sharding.Mesh(np.array(self.devices), ("all",))
        for size in sizes:
            if found and (time.monotonic() > self.until or found[-1][2] > LONG_S):
                break
            shape = (count, size, size) if rank == 2 else (count, size // of)
            x = jax.device_put(
                jnp.ones(shape, of if rank == 2 else jnp.float32), NamedSharding(mesh, PartitionSpec("all"))
            )

            def run(x: jax.Array) -> jax.Array:
                for _ in range(CHAIN):
                    x = jax.lax.optimization_barrier(jax.vmap(op)(x))
                return x

            found.append((f"{what}|{size}", work(size), _seconds(jax.jit(run), x)))
        return found

    def curves(self) -> tuple[dict[str, CollectiveCurve], list[Point]]:
        """The curve of each collective through whatever is between the devices, and its points."""
        groups = [n for n in (2, 4, 8, 16, 32) if n <= len(self.devices) and len(self.devices) % n == 0]
        curves, points = {}, list[Point]()
        for kind, (op, wire, local, steps) in _COLLECTIVES.items():
            terms, rows = [], list[tuple[str, float, float]]()
            for n in groups:
                for size in MOVED_BYTES:
                    rows.append((f"{kind} {n}|{size}", size, self._moved(op, n, size)))
                    terms.append([1.0, steps(n), size * wire(n), size * local(n)])
                    if time.monotonic() > self.until or rows[-1][2] > LONG_S:
                        break
            if rows:
                (launch_s, step_s, wire_s, local_s), found = _fit(terms, rows)
                curves[kind] = CollectiveCurve(
                    max(launch_s, 1e-9), step_s, 1 / max(wire_s, 1e-15), 1 / local_s if local_s > 0 else float("inf")
                )
                points += found
        return curves, points

    def _moved(self, op: Callable[[jax.Array, int], jax.Array], n: int, size: int) -> float:
        """Seconds of a collective of arrays of `size` bytes over groups of n devices."""
        mesh = jax.sharding.Mesh(np.array(self.devices).reshape(-1, n), ("rest", "group"))
        x = jnp.ones((len(self.devices), size // 4), jnp.float32)
        x = jax.device_put(x, NamedSharding(mesh, PartitionSpec(("rest", "group"))))
        spec = PartitionSpec(("rest", "group"))
        call = jax.shard_map(lambda x: op(x[0], n)[None], mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
        return _seconds(jax.jit(call), x)


def _gathered(x: jax.Array, n: int) -> jax.Array:
    return jax.lax.all_gather(x[: x.shape[0] // n], "group", tiled=True)


def _scattered(x: jax.Array, n: int) -> jax.Array:
    return jax.lax.psum_scatter(x, "group", tiled=True)


def _exchanged(x: jax.Array, n: int) -> jax.Array:
    return jax.lax.all_to_all(x, "group", 0, 0, tiled=True)


def _rotated(x: jax.Array, n: int) -> jax.Array:
    return jax.lax.ppermute(x, "group", [(i, (i + 1) % n) for i in range(n)])


Share = Callable[[int], float]
_COLLECTIVES: dict[str, tuple[Callable[[jax.Array, int], jax.Array], Share, Share, Share]] = {
    "all_gather": (_gathered, lambda n: (n - 1) / n, lambda n: 1 / n, lambda n: n - 1.0),
    "reduce_scatter": (_scattered, lambda n: (n - 1) / n, lambda n: 1 / n, lambda n: n - 1.0),
    "all_reduce": (
        lambda x, n: jax.lax.psum(x, "group"), lambda n: 2 * (n - 1) / n, lambda n: 1 / n, lambda n: 2 * (n - 1.0),
    ),
    "all_to_all": (_exchanged, lambda n: (n - 1) / n, lambda n: 1 / n, lambda n: n - 1.0),
    "all_permute": (_rotated, lambda n: 1.0, lambda n: 0.0, lambda n: 0.0),
}  # fmt: skip
"""How each runs, and of its bytes what is sent, what is kept, and how many steps it has (`CollectiveCurve`)."""


def _seconds(function: Callable[[Any], Any], x: Any) -> float:
    """The median of `REPEATS` runs, after one."""
    jax.block_until_ready(function(x))
    took = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        jax.block_until_ready(function(x))
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def _fit(terms: Sequence[Sequence[float]], rows: Sequence[tuple[str, float, float]]) -> tuple[list[float], list[Point]]:
    """Factors of terms, none below zero, with the least squares of relative errors; and the points."""
    from scipy.optimize import nnls  # a fifth of a second that `import autopart` does not wait for

    a, seconds = np.array(terms, float), np.array([row[2] for row in rows])
    relative = a / seconds[:, None]
    scale = relative.max(0) + 1e-300
    best = nnls(relative / scale, np.ones(len(seconds)))[0] / scale
    best[-1] = best[-1] or (1e-15 if a.shape[1] == 2 else 0.0)
    points = [
        Point(name.split("|")[0], float(name.split("|")[1]), took, float(fitted))
        for (name, _, took), fitted in zip(rows, a @ best, strict=True)
    ]
    return best.tolist(), points


def _switch_of(count: int, curves: dict[str, CollectiveCurve]) -> Switch:
    """A switch between so many devices, with the curves; its plain figures are those of a permute."""
    plain = curves["all_permute"]
    return Switch(count, plain.wire_bytes_per_s, plain.launch_s, curves=curves)


def _residual(points: Sequence[Point]) -> float:
    """The relative error that `WITHIN` per cent of the points are within."""
    return float(np.percentile([abs(p.fitted_s / p.measured_s - 1) for p in points], WITHIN))
