"""Is a kernel what its twin or its rule says? It runs whole and on slices, and what slices leave is put together.

verify_kernel(attend, q, k, v)      like its twin, result 0       f32[4,8,512,64]   yes
                                    b in 2, result 0              f32[4,8,512,64]   yes
                                    h in 8, result 0              f32[4,8,512,64]   NO      a false rule
                                    backward: b in 2, result 0    ...               yes
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from autopart.api.jitted.verification import OutputDifference, Verification, compared, filled
from autopart.api.kernels.gradient import Directions, has_own_gradient, is_float
from autopart.api.kernels.kernel import Kernel
from autopart.api.kernels.kernel_primitive import Called
from autopart.base.arguments import NONE, check, instance, number, whole
from autopart.core.op import ANY, WHOLE, TileMapping
from autopart.core.table.temporal import combined, tile


def verify_kernel(
    kernel: Any, *args: Any, seed: int = 0, tolerance: float | None = None, **kwargs: Any
) -> Verification:
    """Runs what `ap.kernel` returned whole and in slices on this machine, and compares, as `verify` does.

    args, kwargs  of a call; what is abstract is filled: floats with normal numbers, integers with 0 and 1
    tolerance     differences of floats allowed, as a share of the largest element; None: by type

    The kernel is compared with its twin, and each factor is cut into as few and as many slices as it allows; so are
    both directions of its gradient, where that is its own. Raises `CallError` where it cannot run here: a Pallas kernel
    for another device can with `interpret=True`.
    """
    check("ap.verify_kernel", kernel=(kernel, instance("what ap.kernel returns", Kernel)))
    check("ap.verify_kernel", seed=(seed, whole(0)), tolerance=(tolerance, number(0) | NONE))
    random = np.random.default_rng(seed)
    kwargs = dict(zip(kwargs, filled(kwargs.values(), random), strict=True))
    called, arrays = kernel.called(*filled(args, random), **kwargs)
    rows = [*_against_twin(called, arrays, tolerance), *_in_slices(called, arrays, "", tolerance)]
    if kernel.gradient == "own" and has_own_gradient(called):
        both = Directions(called)
        rows += _in_slices(both.forward, arrays, "forward: ", tolerance)
        flows = filled([r for r in called.results if is_float(r)], random)
        kept = both.pick(arrays, _run(both.forward, arrays))
        rows += _in_slices(both.backward, [*kept, *flows], "backward: ", tolerance)
    return Verification(tuple(rows))


def _against_twin(called: Called, arrays: Sequence[Any], tolerance: float | None) -> Iterator[OutputDifference]:
    if called.twin is not None:
        there = jax.jit(called.twin(called.operands))(*arrays)
        for result, (want, got) in enumerate(zip(there, _run(called, arrays), strict=True)):
            yield compared(f"like its twin, result {result}", want, got, tolerance)


def _in_slices(called: Called, arrays: Sequence[Any], what: str, tolerance: float | None) -> Iterator[OutputDifference]:
    factors, _ = called.factors()
    expected = _run(called, arrays)
    for factor, mapping in zip(factors.sliced, factors.mappings(), strict=True):
        least = next(p for p in range(2, factor.ways + 1) if factor.ways % p == 0)
        for ways in sorted({least, factor.ways}):
            starts = [k for k, n in factors.starts.items() if factors.sliced[n] == factor]
            found = _reassembled(called, arrays, mapping, ways, starts)
            for result, (want, got) in enumerate(zip(expected, found, strict=True)):
                yield compared(f"{what}{factor.name} in {ways}, result {result}", want, got, tolerance)


def _reassembled(
    called: Called, arrays: Sequence[Any], mapping: TileMapping, ways: int, starts: Collection[int]
) -> list[np.ndarray]:
    """What slices along one mapping leave, put together; operands in `starts` say where a slice starts."""
    dims = mapping.operands
    length = next(np.shape(x)[d] // ways for x, d in zip(arrays, dims, strict=True) if d != WHOLE)
    parts = [
        _run(
            called,
            [
                np.asarray(x) + np.asarray(i * length, np.asarray(x).dtype)
                if k in starts
                else tile(np.asarray(x), d, i, ways)
                for k, (x, d) in enumerate(zip(arrays, dims, strict=True))
            ],
        )
        for i in range(ways)
    ]
    made = zip(zip(*parts, strict=True), mapping.results, strict=True)
    return [_unlike_the_first(each) if a == ANY else combined(list(each), a) for each, a in made]


def _unlike_the_first(parts: Sequence[np.ndarray]) -> np.ndarray:
    """One of the parts that should all be the same."""
    return next((p for p in parts if not np.array_equal(p, parts[0], equal_nan=p.dtype.kind == "f")), parts[0])


def _run(called: Called, arrays: Sequence[Any]) -> list[np.ndarray]:
    """The kernel, not its twin, on this machine."""
    body = called.body(range(len(called.results)), with_twin=False)
    avals = body.local_avals([np.shape(x) for x in arrays])
    function = body.runnable(avals, (jax.default_backend(),), alone=True)[0]
    return [np.asarray(x) for x in function(*arrays)]
