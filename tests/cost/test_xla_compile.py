"""Does the compiler answer as a cost model, and is its text read right?"""

from __future__ import annotations

import importlib.util

import pytest

import autopart as ap
from autopart.base.errors import CallError
from autopart.costmodel import XlaCompile, XlaCpuMemory, estimate
from autopart.costmodel.xla.optimised_hlo import estimated_cycles
from autopart.costmodel.xla.xla_compile import _too_large
from experiments.models import t32
from experiments.models.tactics import BP, MP
from tests.cost.programs import f32, lowered

needs_libtpu = pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs pip install libtpu")

LOOP = """
%body (x: f32[8]) -> f32[8] {
  %b = f32[8] fusion(x), "estimated_cycles":"10"
}

%condition (x: f32[8]) -> pred[] {
  %bound = s32[]{:T(256)} constant(5)
  %lt = pred[] compare(x, %bound), direction=LT, "estimated_cycles":"1"
}

ENTRY %main (x: f32[8]) -> f32[8] {
  %a = f32[8] fusion(x), "estimated_cycles":"7"
  ROOT %w = f32[8] while(%a), condition=%condition, body=%bodyNOTED
}
"""


def test_cycles_of_a_loop_count_its_trips():
    assert estimated_cycles(LOOP.replace("NOTED", "")) == 7 + 5 * 10 + 6 * 1
    noted = LOOP.replace("NOTED", ', backend_config={"known_trip_count":{"n":"3"}}')
    assert estimated_cycles(noted) == 7 + 3 * 10 + 4 * 1


def test_cycles_of_a_case_are_those_of_its_costliest_branch():
    text = """
%one (x: f32[8]) -> f32[8] {
  %b = f32[8] fusion(x), "estimated_cycles":"10"
}

%two (x: f32[8]) -> f32[8] {
  %b = f32[8] fusion(x), "estimated_cycles":"20"
}

ENTRY %main (x: f32[8]) -> f32[8] {
  ROOT %c = f32[8] conditional(%p, x, x), branch_computations={%one, %two}
}
"""
    assert estimated_cycles(text) == 20


def test_a_program_the_compiler_finds_too_large_does_not_fit():
    ours = estimate(lowered(lambda x: x @ x, f32(128, 128)).program)
    message = "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total for HLO temporaries (42.50G) exceeds 15.48G."
    found = _too_large(ours, message)
    assert not found.fits
    assert found.peak_bytes == ours.argument_bytes + 42.5 * 2**30
    assert "15.48G" in found.why
    with pytest.raises(CallError, match="refuses"):
        _too_large(ours, "INTERNAL: something else")


def t32_local(axes, device="tpu_v5e"):
    step = ap.jit(t32.step(t32.SMALL), ap.Mesh(axes, device=device), [BP, MP], donate_argnums=(0, 1))
    return step.lower(*t32.abstract_args(t32.SMALL)).program


def test_cpu_compiler_reports_its_memory_for_every_argument():
    local = t32_local({"batch": 4, "model": 2}, "cpu_host")
    theirs, ours = XlaCpuMemory()(local, local.mesh), estimate(local)
    assert theirs.argument_bytes == pytest.approx(ours.argument_bytes, rel=0.01)
    assert theirs.peak_bytes > theirs.argument_bytes
    assert theirs.step_s == ours.step_s
    with pytest.raises(ValueError, match="not made by the simulator"):
        theirs.top()


def test_too_few_devices_say_how_to_get_more():
    local = t32_local({"batch": 8, "model": 2}, "cpu_host")
    with pytest.raises(CallError, match="needs 16") as error:
        XlaCpuMemory()(local, local.mesh)
    assert "xla_force_host_platform_device_count" in str(error.value)


@needs_libtpu
@pytest.mark.xdist_group("libtpu")
@pytest.mark.slow
def test_tpu_compiler_and_simulator_agree_on_a_small_step():
    local = t32_local({"batch": 4, "model": 2})
    theirs, ours = XlaCompile("v5e:2x4")(local, local.mesh), estimate(local)
    assert theirs.fits
    assert theirs.argument_bytes == pytest.approx(ours.argument_bytes, rel=0.2)
    assert 0.2 < ours.compute_s / theirs.compute_s < 5


@needs_libtpu
@pytest.mark.xdist_group("libtpu")
@pytest.mark.slow
def test_unknown_topology_is_an_error_that_names_a_known_one():
    with pytest.raises(CallError, match="no TPU topology") as error:
        XlaCompile("v99:1x1")(t32_local({"batch": 4, "model": 2}), ap.Mesh({"batch": 4, "model": 2}, "tpu_v5e"))
    assert "v5e:2x4" in str(error.value)
