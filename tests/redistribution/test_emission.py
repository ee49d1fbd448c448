"""Does the StableHLO of each collective do what its type says, for every element type, on devices?"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding

from autopart.api.reshard import device_local_plan, reshard
from autopart.spmd.redistribution import DistributedType, plan
from tests.redistribution.brute_force import layouts
from tests.redistribution.cases import planned
from tests.redistribution.on_devices import device_local, mesh_of, redistributed, spec_of
from tests.redistribution.simulated_devices import COMBINE

CUBE = {"x": 2, "y": 2, "z": 2}
UNEVEN = {"x": 4, "y": 2}

EACH_WAY = {
    "slice": (CUBE, "[8, 8]", "[4{x}8, 2{z,y}8]", ["all_slice"]),
    "slice by part of an axis": (UNEVEN, "[8, 8]", "[4{x:(2)2}8, 4{x:(1)2}8]", ["all_slice"]),
    "gather of one dim": (CUBE, "[2{y,x}8, 8]", "[8, 8]", ["all_gather"]),
    "gather of two dims": (CUBE, "[4{y}8, 2{z,x}8]", "[8, 4{x}8]", ["all_gather"]),
    "exchange of one pair": (CUBE, "[2{y,x}8, 8]", "[8, 2{y,x}8]", ["all_to_all"]),
    "exchange that turns axes around": (CUBE, "[2{y,x}8, 8]", "[8, 2{x,y}8]", ["all_to_all"]),
    "exchange of one dim with two": (CUBE, "[2{y,x}8, 8, 8]", "[8, 4{x}8, 4{y}8]", ["all_to_all"]),
    "exchange of two dims with one": (CUBE, "[4{y}8, 8, 4{z}8]", "[8, 2{y,z}8, 8]", ["all_to_all"]),
    "exchange of two dims with two": (
        CUBE, "[4{y}8, 8, 8, 2{x,z}8]", "[8, 2{x,y}8, 4{z}8, 8]", ["all_to_all"],
    ),
    "exchange of part of an axis": (UNEVEN, "[2{x}8, 8]", "[4{x:(2)2}8, 4{x:(1)2}8]", ["all_to_all"]),
    "exchange beside dims of size 1": (CUBE, "[1, 2{y,x}8, 1{z}2, 8]", "[1, 8, 1{z}2, 2{y,x}8]", ["all_to_all"]),
    "permute": (CUBE, "[4{y}8, 4{z}8]", "[4{z}8, 4{x}8]", ["all_permute"]),
}  # fmt: skip


def check(steps, seed=0):
    array = np.random.default_rng(seed).integers(0, 100, steps.source.shape).astype(np.int32)
    assert np.array_equal(redistributed(steps, array), array), steps


@pytest.mark.parametrize("case", EACH_WAY)
def test_each_collective_in_each_form(case):
    mesh, source, target, kinds = EACH_WAY[case]
    steps = planned(source, target, mesh)
    assert [s.kind for s in steps.steps] == kinds
    if any(axis.size != mesh[axis.name] for dim in steps.target.axes for axis in dim):
        back = plan(steps.target, steps.source)
        array = np.arange(64, dtype=np.int32).reshape(8, 8)
        assert np.array_equal(there_and_back(steps, back, array), array)
    else:
        check(steps)


def there_and_back(there, back, array):
    """For a target that no PartitionSpec can name: what arrives is sent back, and each leg is not the identity."""
    first, second = (device_local_plan(p, array.dtype) for p in (there, back))
    local = there.target.local_shape
    expected = there.target.base_offsets()

    def run(x):
        middle = first(x)[0]
        start = jnp.asarray(expected)[jax.lax.axis_index(("x", "y"))]
        wanted = jax.lax.dynamic_slice(jnp.asarray(array), start, local)
        return second(jnp.where(middle == wanted, middle, -1))[0]

    spec = spec_of(there.source)
    return jax.jit(jax.shard_map(run, mesh=mesh_of(there.source), in_specs=spec, out_specs=spec, check_vma=False))(
        array
    )


@pytest.mark.parametrize(
    ("source", "target", "kinds"),
    [
        ("[8, 8] sum{x}", "[8, 8]", ["all_reduce"]),
        ("[8, 8] sum{x}", "[4{x}8, 8]", ["reduce_scatter"]),
        ("[8, 8] sum{x} sum{y}", "[4{x}8, 4{y}8]", ["reduce_scatter"]),
        ("[8, 8] sum{x} sum{y}", "[8, 4{y}8]", ["reduce_scatter", "all_gather"]),
        ("[8, 8] max{x} min{y}", "[8, 8]", ["all_reduce", "all_reduce"]),
        ("[4{z}8, 8] mul{y}", "[2{y,z}8, 8]", ["reduce_scatter"]),
        ("[4{z}8, 8] sum{y} max{x}", "[8, 2{y,z}8]", None),
    ],
)
def test_pending_reductions(source, target, kinds):
    steps = planned(source, target, CUBE)
    if kinds is not None:
        assert [s.kind for s in steps.steps if s.kind != "all_slice"] == kinds
    codes = [code for _, code in steps.source.pending]
    parts = np.random.default_rng(0).integers(-9, 9, (*[2] * len(codes), 8, 8)).astype(np.int32)
    whole = parts
    for code in reversed(codes):
        whole = COMBINE[code].reduce(whole, axis=whole.ndim - 3)
    assert np.array_equal(redistributed(steps, parts), whole), steps


@pytest.mark.parametrize("kind", ["and", "or"])
def test_pending_and_and_or_of_bools(kind):
    steps = planned(f"[8, 8] {kind}{{x}}", "[4{x}8, 8]", CUBE)
    parts = np.random.default_rng(0).integers(0, 2, (2, 8, 8)).astype(bool)
    assert np.array_equal(redistributed(steps, parts), COMBINE[steps.source.pending[0][1]].reduce(parts, axis=0))


DTYPES = [
    "bool",
    "int4",
    "int8",
    "uint8",
    "int16",
    "uint32",
    "float16",
    "bfloat16",
    "float32",
    "complex64",
    "float8_e5m2",
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_element_type_moves(dtype):
    steps = planned("[4{y}8, 8, 4{z}8]", "[8, 4{x}8, 4{y}8]", CUBE)
    assert len(steps.steps) >= 2
    array = np.random.default_rng(0).integers(0, 2, (8, 8, 8)).astype(jnp.dtype(dtype))
    assert np.array_equal(np.asarray(redistributed(steps, array)).astype(np.complex64), array.astype(np.complex64))


@pytest.mark.parametrize("dtype", ["int8", "float16", "bfloat16", "float32", "complex64"])
def test_sums_of_every_kind_of_number(dtype):
    steps = planned("[8, 8] sum{x}", "[4{x}8, 8]", CUBE)
    parts = np.random.default_rng(0).integers(0, 3, (2, 8, 8)).astype(jnp.dtype(dtype))
    assert np.array_equal(redistributed(steps, parts), parts[0] + parts[1])


def test_device_maps_of_mixed_primes_reach_the_devices():
    steps = planned("[4{x}8, 12]", "[4{x}8, 12]", {"x": 2})
    assert not steps.steps
    steps = planned("[6{x}12, 4{z}12]", "[4{z}12, 6{x}12]", {"x": 2, "y": 1, "z": 3})
    assert any(s.target.devices is not None for s in steps.steps)
    check(steps)


def test_scalars_and_empty_arrays():
    steps = planned("[] sum{x}", "[]", CUBE)
    assert redistributed(steps, np.array([3, 4], np.int32)) == 7
    mesh = {"x": 2}
    assert redistributed(planned("[0{x}0, 4]", "[0, 2{x}4]", mesh), np.zeros((0, 4), np.float32)).shape == (0, 4)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(8, 8), (8, 8, 8)], ids=str)
def test_every_pair_of_layouts_on_2x2x2_equals_device_put(shape):
    """All ordered layouts to all others, emitted, run on eight devices and compared shard by shard with jax's own."""
    types = [DistributedType.of(shape, layout, CUBE) for layout in layouts(CUBE, len(shape), shape)]
    mesh = mesh_of(types[0])
    shardings = [NamedSharding(mesh, spec_of(kind)) for kind in types]
    array = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    expected = [jax.device_put(array, s) for s in shardings]
    for start, source in zip(expected, shardings, strict=True):
        every = jax.jit(lambda x, source=source: [reshard(x, s, source=source) for s in shardings])(start)
        for got, wanted in zip(every, expected, strict=True):
            assert got.sharding.is_equivalent_to(wanted.sharding, len(shape))
            for ours, theirs in zip(got.addressable_shards, wanted.addressable_shards, strict=True):
                assert ours.device == theirs.device
                assert np.array_equal(ours.data, theirs.data)


def test_each_step_is_one_collective_of_stablehlo():
    steps = planned("[4{y}8, 8, 4{z}8]", "[8, 4{x}8, 4{y}8]", CUBE)
    run = jax.jit(device_local(steps, np.dtype("float32")))
    text = run.lower(jax.ShapeDtypeStruct((8, 8, 8), "float32")).as_text()
    names = {"all_gather": "all_gather", "all_to_all": "all_to_all", "all_permute": "collective_permute"}
    assert {s.kind for s in steps.steps} <= {*names, "all_slice"}
    for kind, name in names.items():
        assert text.count(f'"stablehlo.{name}"') == sum(s.kind == kind for s in steps.steps)
