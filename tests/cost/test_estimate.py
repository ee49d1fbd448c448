"""Does an estimate follow the closed forms of the strategies, and does it say where its figures come from?"""

from __future__ import annotations

import functools
import itertools
import json

import pytest

import autopart as ap
from autopart.api.tracing.trace import LoadedProgram
from autopart.base.errors import ArgumentError, MeshError
from autopart.base.units import seconds_text
from autopart.costmodel import Simulator, SimulatorOptions, estimate, estimate_of
from experiments.models import t32
from experiments.models.tactics import BP, MP, Z3
from tests.cost.programs import f32, lowered, mlp_step

CONFIG = t32.SMALL


@functools.cache
def traced():
    """T32's step, traced once for all meshes of TPUs."""
    step = ap.jit(t32.step(CONFIG), ap.Mesh({"batch": 4}, device="tpu_v3"), [], donate_argnums=(0, 1))
    return LoadedProgram(step.traced(t32.abstract_args(CONFIG), {}), "T32")


def t32_on(axes, schedule, device="tpu_v3"):
    return ap.jit(traced(), ap.Mesh(axes, device=device), schedule).lower()


@pytest.fixture(scope="module")
def three():
    """T32 replicated, batch-parallel, and with Megatron and ZeRO-3 on top."""
    axes = {"batch": 4, "model": 2}
    return [estimate(t32_on(axes, s).program) for s in ([], [BP], [BP, MP, Z3])]


def matrix_flop(found):
    return float(found.simulation.graph.nodes["matrix_flop"] @ found.simulation.node_trips)


def test_batch_parallelism_divides_the_flop_by_the_axis(three):
    replicated, batch, _ = three
    assert matrix_flop(batch) == pytest.approx(matrix_flop(replicated) / 4)


def test_all_axes_divide_the_flop_of_the_layers(three):
    replicated, _, all_three = three
    logits = 3 * 2 * CONFIG.batch * CONFIG.sequence * CONFIG.model_dim * CONFIG.vocabulary
    layers = matrix_flop(replicated) - logits
    assert matrix_flop(all_three) == pytest.approx(layers / 8 + logits / 4)


def test_zero_3_divides_the_bytes_of_what_it_shards():
    mesh = ap.Mesh({"batch": 4}, device="tpu_v3")
    bp = ap.ManualPartition({"x": 0}, axis="batch")
    z3 = ap.ManualPartition({"params": ap.FIRST_DIVISIBLE_DIM}, axis="batch")
    whole, sharded = (
        estimate(lowered(mlp_step, [f32(1024, 1024)] * 3, f32(32, 1024), mesh=mesh, schedule=s, donate=0).program)
        for s in ([bp], [bp, z3])
    )
    x_bytes = 32 // 4 * 1024 * 4
    assert sharded.argument_bytes - x_bytes == (whole.argument_bytes - x_bytes) / 4


def test_megatron_reduces_four_activations_a_layer():
    found = estimate(t32_on({"model": 2}, [MP]).program)
    activation_bytes = CONFIG.batch * CONFIG.sequence * CONFIG.model_dim * 4
    total = found.collectives["all_reduce"]
    assert total.count == 4 * CONFIG.layers
    assert total.bytes == 4 * CONFIG.layers * activation_bytes


def test_overlap_hides_at_most_the_collectives(three):
    for found in three:
        assert max(found.compute_s, found.collective_s) <= found.overlapped_s * (1 + 1e-9)
        assert found.overlapped_s <= found.serial_s * (1 + 1e-9)
        assert found.serial_s == pytest.approx(found.compute_s + found.collective_s)
        assert found.step_s == found.serial_s


def test_overlap_is_chosen_by_an_option():
    local = t32_on({"batch": 4, "model": 2}, [BP, MP, Z3]).program
    found = estimate(local, options=SimulatorOptions(overlap=True))
    assert found.step_s == found.overlapped_s < found.serial_s


def test_compute_and_collectives_add_up_to_the_step(three):
    for found in three:
        parts = sum(total.seconds for total in found.collectives.values())
        assert found.collective_s == pytest.approx(parts)
        assert found.compute_s + parts == pytest.approx(found.serial_s)


def test_collectives_one_by_one_take_longer_where_small_ones_are_combined(three):
    for found in three:
        assert all(t.uncombined_s >= t.seconds * (1 - 1e-9) for t in found.collectives.values())
    reduced = three[1].collectives["all_reduce"]
    assert reduced.uncombined_s > 1.05 * reduced.seconds
    assert f"all_reduce {seconds_text(reduced.seconds)} (" in str(three[1])
    assert f"before small ones are combined: all_reduce {seconds_text(reduced.uncombined_s)}" in str(three[1])


def test_top_of_one_kind_lists_that_kind_alone(three):
    found = three[2]
    collectives, kernels = found.top(10**6, kind="collectives"), found.top(10**6, kind="kernels")
    assert all("<" in row.what.split(" ")[0] for row in collectives.seconds)
    assert not any("all_gather<" in row.what for row in kernels.seconds)
    assert collectives.bytes == kernels.bytes == ()
    assert sum(r.seconds for r in collectives.seconds) >= found.collective_s * (1 - 1e-9)
    together = sum(r.seconds for r in (*collectives.seconds, *kernels.seconds))
    assert together == pytest.approx(found.serial_s)
    assert found.top(5, kind="buffers").bytes == found.top(5).bytes
    with pytest.raises(ArgumentError, match="'kernels', 'collectives', 'buffers'"):
        found.top(5, kind="ops")


def test_one_simulator_serves_every_state_of_a_program():
    axes = {"batch": 4, "model": 2}
    first = t32_on(axes, [BP])
    simulator = Simulator.of(first.program.program, first.program.mesh)
    for schedule in ([BP], [BP, MP, Z3], [], [BP]):
        local = t32_on(axes, schedule).program
        again, fresh = estimate_of(simulator, local), estimate(local)
        assert (again.step_s, again.peak_bytes, again.flop) == (fresh.step_s, fresh.peak_bytes, fresh.flop)


def test_metadata_reports_the_estimate_of_the_exported_program():
    low = t32_on({"batch": 4, "model": 2}, [BP, MP])
    found, last = estimate(low.program), low.metadata.tactics[-1]
    assert (last.step_s, last.peak_bytes) == (found.step_s, found.peak_bytes)
    assert found.collectives["all_reduce"].count == last.collectives["all_reduce"]


def test_top_rows_name_the_line_and_the_parameter(three):
    top = three[2].top(60)
    assert {"all_gather<batch>", "dot_general"} <= {row.what.split(" ")[0] for row in top.seconds}
    assert any("t32.py:" in row.where for row in top.seconds)
    assert any(row.path.endswith("/qkv") and "all_gather" in row.what for row in top.seconds)
    assert any(row.path.startswith("params/") for row in top.bytes)
    assert [r.seconds for r in top.seconds] == sorted((r.seconds for r in top.seconds), reverse=True)
    assert [r.bytes for r in top.bytes] == sorted((r.bytes for r in top.bytes), reverse=True)
    assert sum(r.bytes for r in three[2].top(10**6).bytes) >= 0.99 * three[2].peak_bytes - three[2].output_bytes
    assert len(str(top).splitlines()) == 120


def test_timeline_is_a_chrome_trace_that_ends_with_the_step(three, tmp_path):
    three[2].write_timeline(tmp_path / "step.json")
    trace = json.loads((tmp_path / "step.json").read_text())
    kinds = {event["ph"] for event in trace["traceEvents"]}
    assert kinds == {"M", "X", "C"}
    events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert max(e["ts"] + e["dur"] for e in events) == pytest.approx(three[2].overlapped_s * 1e6)
    for row in (0, 1):
        line = sorted((e["ts"], e["dur"]) for e in events if e["tid"] == row)
        assert len(line) > 1
        assert all(a + d <= b + 1e-6 for (a, d), (b, _) in itertools.pairwise(line))


def test_estimates_are_text_and_json(three):
    text, figures = str(three[2]), json.loads(three[2].to_json())
    assert f"all_gather {seconds_text(three[2].collectives['all_gather'].seconds)}" in text
    assert text.splitlines()[2].startswith("peak ")
    assert text.splitlines()[2].endswith("  fits")
    assert "on 9 of 10 of" in text.splitlines()[3]
    assert figures["step_s"] == three[2].step_s
    assert set(figures["collectives"]) == set(three[2].collectives)


def test_a_mesh_without_a_device_has_no_estimate():
    low = lowered(lambda x: x * 2, f32(8, 8), mesh=ap.Mesh({"batch": 4}))
    with pytest.raises(MeshError, match="names no device"):
        estimate(low.program)


def test_another_mesh_prices_the_same_program_on_other_wires():
    local = t32_on({"batch": 4, "model": 2}, [BP]).program
    slow = ap.Mesh({"batch": 4, "model": 2}, device="tpu_v3", links={"batch": "dcn"})
    assert estimate(local, slow).collective_s > estimate(local).collective_s
    assert estimate(local, slow).compute_s == estimate(local).compute_s


@pytest.mark.parametrize("field", ["hbm_bytes_per_s", "vector_flop_per_s", "peak_flop_per_s"])
def test_a_faster_device_never_takes_longer(field):
    from dataclasses import replace

    from autopart.costmodel import device, devices, register_device

    base = device("tpu_v5e")
    value = getattr(base, field)
    faster = {k: 2 * v for k, v in value.items()} if isinstance(value, dict) else 2 * value
    name = f"twice_{field}"
    if name not in devices():
        register_device(replace(base, name=name, **{field: faster}))
    local = t32_on({"batch": 4, "model": 2}, [BP, MP], "tpu_v5e").program
    mesh = ap.Mesh({"batch": 4, "model": 2}, device=name)
    assert estimate(local, mesh).step_s <= estimate(local).step_s
