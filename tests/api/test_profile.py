"""Are the events of a profile put beside what the estimate says of the same kernels, collectives and lines?"""

import jax
import jax.numpy as jnp
import pytest

import autopart as ap
from autopart.api.measured.profile import profile_beside

LAYERS, ROWS, WIDTH = 4, 64, 32


def step(w, x):
    def loss(w):
        h, _ = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, w)
        return jnp.square(h).mean()

    return w - 0.1 * jax.grad(loss)(w)


PRODUCT_LINE = f"test_profile.py:{step.__code__.co_firstlineno + 2}"


def lowered(device="cpu_host"):
    mesh = ap.Mesh({"data": 4, "model": 2}, device=device)
    schedule = [ap.ManualPartition({"x": 0}, axis="data"), ap.ManualPartition({"w": 2}, axis="model")]
    shapes = jax.ShapeDtypeStruct((LAYERS, WIDTH, WIDTH), "float32"), jax.ShapeDtypeStruct((ROWS, WIDTH), "float32")
    return ap.jit(step, mesh, schedule, donate_argnums=0).lower(*shapes)


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    low, folder = lowered(), tmp_path_factory.mktemp("profile")
    compiled = low.compile()
    w, x = jnp.ones((LAYERS, WIDTH, WIDTH)), jnp.ones((ROWS, WIDTH))
    w = jax.block_until_ready(compiled(w, x))
    with jax.profiler.trace(str(folder)):
        for _ in range(3):
            w = jax.block_until_ready(compiled(w, x))
    return low, folder


def test_a_profile_of_a_step_on_cpu_devices_is_put_beside_its_estimate(traced, tmp_path):
    low, folder = traced
    found = ap.calibrate(trace=folder, of=low)
    rows = {(row.group, row.what): row for row in found.rows}
    for of in (("kernels", "matmul"), ("collectives", "all_reduce<data>"), ("lines", PRODUCT_LINE)):
        assert rows[of].estimated_s > 0
        assert rows[of].measured_s > 0
    kernels, lines = found.total("kernels"), found.total("lines")
    assert kernels[1] == pytest.approx(lines[1])
    assert found.total("collectives")[0] == pytest.approx(low.estimate.collective_s)
    assert PRODUCT_LINE in str(found)
    page = low.report(tmp_path / "page.html", named=False, trace=folder).read_text()
    assert "Beside a profile" in page
    assert PRODUCT_LINE in page


def test_a_profile_of_another_program_is_refused(traced):
    other = ap.jit(lambda x: x.sum(), ap.Mesh({"x": 8}, device="cpu_host"), []).lower(jnp.ones(8))
    with pytest.raises(ap.ArgumentError, match="no profile of this program"):
        ap.calibrate(trace=traced[1] / "nothing", of=other)


def test_a_program_without_an_estimate_is_refused(traced):
    with pytest.raises(ap.ArgumentError, match="there is no estimate"):
        ap.calibrate(trace=traced[1], of=lowered(None))


TEXT = """HloModule jit_f

FileNames
1 "/somewhere/model.py"

FileLocations
1 {file_name_id=1 function_name_id=1 line=7 end_line=7 column=0 end_column=0}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

%body (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %dot.1 = f32[8]{0} dot(%a, %b), lhs_contracting_dims={0}, metadata={op_name="dot" stack_frame_id=1}
}

%cond (p: (s32[], f32[8])) -> pred[] {
}

ENTRY %main (x: f32[8]) -> f32[8] {
  %while.1 = (s32[], f32[8]) while(%t), condition=%cond, body=%body, backend_config={"known_trip_count":{"n":"5"}}
  %ar = f32[8]{0} all-reduce(%x), replica_groups={{0,1}}, to_apply=%add
  %old = f32[8]{0} add(%x, %x), metadata={op_name="add" source_file="/older/text.py" source_line=3}
}
"""

EVENTS = {"/device:GPU:0": {"dot.1": (3, 5), "ar": (9,), "old": (2,)}, "/device:GPU:1": {"dot.1": (4,), "ar": (6,)}}
"""Milliseconds of each event."""


def test_instructions_count_as_often_as_the_text_runs_them_and_collectives_by_the_device_that_waits_least(tmp_path):
    planes = []
    for plane, ops in EVENTS.items():
        names = "".join(f'event_metadata {{ key: {n} value {{ id: {n} name: "{op}" }} }}' for n, op in enumerate(ops))
        stats = 'stat_metadata { key: 1 value { id: 1 name: "hlo_op" } }'
        stat = 'stats {{ metadata_id: 1 str_value: "{}" }}'
        events = "".join(
            f"events {{ metadata_id: {n} duration_ps: {ms}000000000 {stat.format(op)} }}"
            for n, (op, took) in enumerate(ops.items())
            for ms in took
        )
        planes.append(f'planes {{ name: "{plane}" {names} {stats} lines {{ name: "Stream" {events} }} }}')
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(jax.profiler.ProfileData.text_proto_to_serialized_xspace(" ".join(planes)))
    low = ap.jit(lambda x: x + x, ap.Mesh({"data": 2}, device="h100"), []).lower(jax.ShapeDtypeStruct((8,), "float32"))
    found = profile_beside(tmp_path, low.estimate, TEXT, low.mesh)
    assert {(row.group, row.what): row.measured_s for row in found.rows if row.measured_s} == {
        ("kernels", "matmul"): pytest.approx(5 * 4e-3),
        ("kernels", "elementwise"): pytest.approx(2e-3),
        ("collectives", "all_reduce<data>"): pytest.approx(6e-3),
        ("lines", "model.py:7"): pytest.approx(5 * 4e-3),
        ("lines", "text.py:3"): pytest.approx(2e-3),
    }
