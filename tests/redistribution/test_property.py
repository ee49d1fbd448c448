"""Any types on any mesh: is the array the same afterwards, and every type on the way well-formed?"""

from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from autopart.core.op import MAX, SUM
from autopart.spmd.redistribution import AlphaBeta, DistributedType, plan, verify
from tests.redistribution.simulated_devices import COMBINE, follow, run, tiles_of

MAX_DEVICES = 144
MAX_ELEMENTS = 200_000


@st.composite
def meshes(draw: st.DrawFn) -> dict[str, int]:
    """One to three axes of size 1 to 12."""
    sizes: dict[str, int] = {}
    for name in draw(st.sampled_from(["x", "xy", "xyz"])):
        sizes[name] = draw(st.integers(1, min(12, MAX_DEVICES // math.prod(sizes.values()))))
    return sizes


@st.composite
def problems(draw: st.DrawFn, pending: bool = False) -> tuple[DistributedType, DistributedType]:
    """Two types of one shape on one mesh."""
    mesh = draw(meshes())
    rank = draw(st.integers(1, 4))
    reduced = [a for a in mesh if pending and draw(st.booleans())]
    dims = []
    for fixed in (reduced, []):
        axes = draw(st.permutations([a for a in mesh if a not in fixed]))
        layout = [[] for _ in range(rank)]
        for axis in axes:
            dim = draw(st.integers(-1, rank - 1))
            if dim >= 0:
                layout[dim].append(axis)
        dims.append(layout)
    shape = []
    for dim in range(rank):
        ways = [math.prod(mesh[a] for a in layout[dim]) for layout in dims]
        shape.append(math.lcm(*ways) * draw(st.sampled_from([1, 1, 2, 3])))
    if math.prod(shape) > MAX_ELEMENTS:
        shape = [math.lcm(*(math.prod(mesh[a] for a in layout[d]) for layout in dims)) for d in range(rank)]
    codes = [(a, draw(st.sampled_from([SUM, MAX]))) for a in draw(st.permutations(reduced))]
    return DistributedType.of(shape, dims[0], mesh, codes), DistributedType.of(shape, dims[1], mesh)


def assert_arrives(steps, array) -> None:
    verify(steps)
    assert steps.height <= 1
    assert all(map(np.array_equal, run(steps, array), tiles_of(array, steps.target))), steps


@settings(max_examples=150, deadline=None)
@given(problems())
def test_the_redistributed_array_is_the_original(problem):
    source, target = problem
    array = np.arange(math.prod(source.shape)).reshape(source.shape)
    assert_arrives(plan(source, target), array)


@settings(max_examples=60, deadline=None)
@given(
    problems(), st.lists(st.sampled_from([0.0, 1e-6, 1e-4]), min_size=3, max_size=3), st.permutations([1e9, 1e10, 4e10])
)
def test_any_cost_leads_to_the_same_array(problem, latencies_s, bytes_per_s):
    source, target = problem
    names = [name for name, _ in source.mesh]
    cost = AlphaBeta(dict(zip(names, latencies_s, strict=False)), dict(zip(names, bytes_per_s, strict=False)))
    array = np.arange(math.prod(source.shape)).reshape(source.shape)
    assert_arrives(plan(source, target, cost=cost), array)


@settings(max_examples=100, deadline=None)
@given(problems(pending=True), st.integers(0, 2**32 - 1))
def test_pending_reductions_are_done_once_and_in_order(problem, seed):
    """Parts differ along the axes they are pending on; reduced innermost (last) first."""
    source, target = problem
    mesh, axes = dict(source.mesh), [(a.name, code) for a, code in source.pending]
    shape = tuple(mesh[a] for a, _ in axes)
    parts = np.random.default_rng(seed).integers(-50, 50, (*shape, *source.shape))
    whole = parts
    for _, code in reversed(axes):
        whole = COMBINE[code].reduce(whole, axis=whole.ndim - len(source.shape) - 1)
    tiles = []
    offsets = source.base_offsets()
    for device, point in enumerate(itertools.product(*map(range, mesh.values()))):
        place = dict(zip(mesh, point, strict=True))
        start = offsets[device].tolist()
        cut = tuple(slice(o, o + n) for o, n in zip(start, source.local_shape, strict=True))
        tiles.append(parts[tuple(place[a] for a, _ in axes)][cut])
    steps = plan(source, target)
    verify(steps)
    for step in steps.steps:
        tiles = follow(step, tiles)
    assert all(map(np.array_equal, tiles, tiles_of(whole, target))), steps
