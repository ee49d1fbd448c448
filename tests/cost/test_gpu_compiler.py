"""Is XLA's GPU compiler asked right without a GPU, and is its text priced as it runs?"""

import gzip
import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import autopart as ap
from autopart.base.errors import CallError
from autopart.core.doors.xla_options import WITHOUT_A_GPU
from autopart.costmodel import XlaCompile, collective_seconds, cost_model_of, mesh_links, topology_devices
from autopart.costmodel.hardware.devices import device
from autopart.costmodel.hardware.gpu_targets import GPU_TARGETS, gpu_topology, target_config
from autopart.costmodel.xla import topologies as asked
from autopart.costmodel.xla.gpu_kernels import kernel_seconds
from autopart.costmodel.xla.hlo_collectives import collectives, seconds
from autopart.costmodel.xla.optimised_hlo import OptimisedHlo
from autopart.costmodel.xla.two_streams import replay
from tests.cost.programs import f32, lowered

KEPT = Path(__file__).parents[1] / "data" / "gpu" / "t32_fsdp_tp.hlo.gz"
"""T32 of two layers of width 512 under BP+MP+Z3, compiled for eight H100 by XLA of jax 0.10.2."""

MESH = ap.Mesh({"batch": 4, "model": 2}, device="h100")
H100 = device("h100")

needs_compiler = pytest.mark.skipif(
    importlib.util.find_spec("jax_plugins") is None or importlib.util.find_spec("jax_plugins.xla_cuda12") is None,
    reason="needs pip install autopart[gpu-compiler]",
)


def module(body, more=""):
    return OptimisedHlo(f"{more}\nENTRY %main (x: f32[1024,1024]) -> f32[1024,1024] {{\n{body}\n}}\n")


GATHER = (
    "%g = (f32[1024,1024], f32[8192,1024]) all-gather-start(%x), replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}"
)
FUSION = "%f = f32[1024,65536] fusion(%x), kind=kLoop, calls=%c"
DONE = "%d = f32[8192,1024] all-gather-done(%g)"
X = "%x = f32[1024,1024] parameter(0)"
EIGHT = ap.Mesh({"all": 8}, device="h100")


def test_a_collective_hides_behind_what_stands_between_its_start_and_its_end():
    beside, before = (module("\n".join(f"  {line}" for line in lines)) for lines in
                      ((X, GATHER, FUSION, DONE), (X, GATHER, DONE, FUSION)))  # fmt: skip
    hidden, waited = replay(beside, EIGHT, H100), replay(before, EIGHT, H100)
    link_s = collective_seconds(mesh_links(EIGHT), "all_gather", 4.0 * 1024**2, "all")
    assert hidden.link_s == waited.link_s == pytest.approx(link_s)
    assert hidden.compute_s == waited.compute_s == pytest.approx(kernel_seconds(beside, H100))
    assert hidden.step_s == pytest.approx(max(hidden.link_s, hidden.compute_s))
    assert waited.step_s == pytest.approx(link_s + waited.compute_s)


def test_one_that_the_compiler_made_synchronous_is_waited_for():
    lines = (X, GATHER + ', backend_config={"is_sync":true}', FUSION, DONE)
    found = replay(module("\n".join(f"  {line}" for line in lines)), EIGHT, H100)
    assert found.step_s == pytest.approx(found.link_s + found.compute_s)


def test_trips_of_a_loop_count():
    body = "\n".join(f"  {line}" for line in (X, GATHER, FUSION, DONE))
    loop = f"%body (x: f32[1024,1024]) -> f32[1024,1024] {{\n{body}\n}}\n\n%cond (x: f32[1024,1024]) -> pred[] {{\n}}\n"
    line = '  %w = f32[1024,1024] while(%x), condition=%cond, body=%body, backend_config={"known_trip_count":{"n":"7"}}'
    one, seven = replay(module(body), EIGHT, H100), replay(module(f"  {X}\n{line}", loop), EIGHT, H100)
    assert (seven.compute_s, seven.link_s) == (pytest.approx(7 * one.compute_s), pytest.approx(7 * one.link_s))
    assert seven.step_s == pytest.approx(7 * one.step_s, rel=0.02)
    assert sum(seven.collectives.values()) == 7


@pytest.mark.parametrize(
    ("groups", "axes"),
    [
        ("{{0,1},{2,3},{4,5},{6,7}}", (("model", 2),)),
        ("[2,4]<=[4,2]T(1,0)", (("batch", 4),)),
        ("mesh['a'=4,'b'=2] {'a'}", (("batch", 4),)),
        ("{{0,1,2,3,4,5,6,7}}", (("batch", 4), ("model", 2))),
    ],
)
def test_groups_are_read_in_every_spelling(groups, axes):
    line = f"  %r = f32[256,1024] reduce-scatter(%x), replica_groups={groups}, dimensions={{0}}"
    (kind, spanned, moved), *others = collectives(module(f"  {X}\n{line}"), MESH)
    assert (kind, spanned, moved, others) == ("reduce_scatter", axes, 4.0 * 1024**2, [])


def test_a_reduce_scatter_that_an_async_start_begins_counts_once():
    inner = "%c (x: f32[1024,1024]) -> f32[128,1024] {\n" + f"  {X}\n"
    inner += "  %r = f32[128,1024] reduce-scatter(%x), replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}\n}\n"
    lines = f"  {X}\n  %s = ((f32[1024,1024]), f32[128,1024]) async-start(%x), calls=%c\n"
    lines += "  %d = f32[128,1024] async-done(%s)"
    found = replay(module(lines, inner), EIGHT, H100)
    assert dict(found.collectives) == {("reduce_scatter", (("all", 8),), 4.0 * 1024**2): 1}


def test_a_kept_text_is_priced_after_combining():
    text = OptimisedHlo(gzip.decompress(KEPT.read_bytes()).decode())
    found = replay(text, MESH, H100)
    assert found.compute_s == pytest.approx(kernel_seconds(text, H100))
    assert found.collectives == collectives(text, MESH)
    assert found.link_s == pytest.approx(sum(n * seconds(c, MESH) for c, n in found.collectives.items()))
    assert sum(found.collectives.values()) == 13
    assert max(found.compute_s, found.link_s) < found.step_s < found.compute_s + found.link_s


# ---- what the compiler is asked


def test_hosts_follow_from_the_number_of_devices():
    assert gpu_topology("h100", 4) == ("h100", "1x1x4")
    assert gpu_topology("h100", 32) == ("h100", "1x4x8")
    assert gpu_topology("gb200", 8) == ("gb200", "1x2x4")
    assert gpu_topology("h100:2x4x8", 8) == ("h100", "2x4x8")
    assert gpu_topology("a100_80gb", 12) == ("a100_80gb", "1x2x6")
    with pytest.raises(CallError, match="no GPU topology"):
        gpu_topology("h100:8", 8)


@pytest.mark.parametrize("name", GPU_TARGETS)
def test_every_target_is_a_device_with_about_its_memory_and_rate(name):
    of, known = GPU_TARGETS[name], device(name)
    assert 0.95 < of.hbm_bytes / known.hbm_bytes < 1.08
    assert of.hbm_bytes_per_s == pytest.approx(known.hbm_bytes_per_s, rel=0.01)
    assert f"device_memory_size: {of.hbm_bytes}" in target_config(name)
    assert "device_memory_size: 77\n" in target_config(name, 77)


def test_gpus_and_topologies_are_cost_models_by_name():
    assert cost_model_of("h100") == XlaCompile("h100")
    assert cost_model_of("h100:1x4x8") == XlaCompile("h100:1x4x8")
    assert cost_model_of("v5e:2x4") == XlaCompile("v5e:2x4")
    with pytest.raises(ap.UnknownNameError, match="h101"):
        cost_model_of("h101")


def test_without_the_compiler_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(asked, "_version", lambda package: "")
    with pytest.raises(CallError, match="not installed") as error:
        asked.check_gpu_compiler()
    assert "autopart[gpu-compiler]" in str(error.value)


def test_a_compiler_of_another_version_is_refused(monkeypatch):
    monkeypatch.setattr(asked, "_version", lambda package: "0.1.0")
    with pytest.raises(CallError, match="another version than jaxlib") as error:
        asked.check_gpu_compiler()
    assert "jax-cuda12-plugin==" in str(error.value)


def step(w, x):
    loss = lambda w: (jnp.tanh(x @ w) @ w.T).sum()  # noqa: E731
    return w - 0.1 * jax.grad(loss)(w)


FSDP = [ap.ManualPartition({"x": 0}, axis="batch"), ap.ManualPartition({"w": 0}, axis="batch")]


@needs_compiler
@pytest.mark.slow
def test_a_step_is_compiled_for_gpus_that_are_not_there():
    local = lowered(step, f32(2048, 2048), f32(4096, 2048), mesh=MESH, schedule=FSDP, donate=0).program
    theirs, ours = XlaCompile("h100")(local, MESH), ap.costmodel.estimate(local)
    assert theirs.fits
    assert theirs.argument_bytes == pytest.approx(ours.argument_bytes, rel=0.01)
    assert 0.5 < ours.compute_s / theirs.compute_s < 2
    assert theirs.collectives["all_gather"].count > 0
    assert theirs.step_s <= theirs.serial_s == pytest.approx(theirs.compute_s + theirs.collective_s)


@needs_compiler
@pytest.mark.slow
def test_a_step_compiles_on_a_mesh_of_gpus_that_are_not_there():
    devices = topology_devices("h100", 8)
    mesh = jax.sharding.Mesh([[devices[2 * i + j] for j in range(2)] for i in range(4)], ("batch", "model"))
    compiled = ap.jit(step, mesh, FSDP).lower(f32(2048, 2048), f32(4096, 2048)).compile()
    assert compiled.memory_analysis().argument_size_in_bytes == 4 * (2048 // 4 * 2048 + 4096 // 4 * 2048)
    assert "all-gather" in compiled.as_text()
    assert WITHOUT_A_GPU
