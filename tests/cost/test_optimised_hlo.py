"""Is an optimised module read right: what runs, how often, at what cost, and which collectives over which axes?"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import autopart as ap
from autopart.costmodel import collective_seconds, mesh_links
from autopart.costmodel.hardware.devices import device
from autopart.costmodel.xla.hlo_collectives import collectives, seconds
from autopart.costmodel.xla.optimised_hlo import OptimisedHlo
from autopart.costmodel.xla.xla_compile import compute_seconds
from experiments.against_xla.hlo import cycles_by_class

MESH = ap.Mesh({"batch": 4, "model": 2}, device="tpu_v5e")

MODULE = """
%add (a: f32[], b: f32[]) -> f32[] {
  ROOT %s = f32[] add(%a, %b)
}

%matmul (x: f32[8,128], y: f32[128,8]) -> f32[8,8] {
  %x = f32[8,128]{1,0} parameter(0)
  %t = f32[128,8]{1,0} transpose(%x)
  ROOT %d = f32[8,8]{1,0} convolution(%x, %t)
}

%move (x: f32[8,128]) -> f32[128,8] {
  %x = f32[8,128]{1,0} parameter(0)
  %i = s32[] parameter(1)
  %j = s32[] add(%i, %i)
  %p = f32[4,128]{1,0} dynamic-slice(%x, %j, %i)
  ROOT %t = f32[128,4]{1,0} transpose(%p)
}

%sums (x: f32[8,128]) -> f32[8,128] {
  %x = f32[8,128]{1,0} parameter(0)
  ROOT %a = f32[8,128]{1,0} add(%x, %x)
}

%all-reduce-scatter (x: f32[8,128]) -> f32[2,128] {
  %x = f32[8,128]{1,0} parameter(0)
  %r = f32[8,128]{1,0} all-reduce(%x), replica_groups={{0,2,4,6},{1,3,5,7}}, to_apply=%add
  ROOT %p = f32[2,128]{1,0} dynamic-slice(%r, %i)
}

%body (c: (f32[8,128])) -> (f32[8,128]) {
  %c = (f32[8,128]{1,0}) parameter(0)
  %x = f32[8,128]{1,0} get-tuple-element(%c), index=0
  %g = f32[16,128]{1,0} all-gather(%x), replica_groups=[4,2]<=[8], dimensions={0}
  ROOT %a = f32[8,128]{1,0} fusion(%x), kind=kLoop, calls=%sums, "estimated_cycles":"10"
}

%condition (c: (f32[8,128])) -> pred[] {
  ROOT %l = pred[] compare(%c, %c), direction=LT
}

ENTRY %main (x: f32[8,128]) -> f32[8,128] {
  %x = f32[8,128]{1,0} parameter(0)
  %d = f32[8,8]{1,0} fusion(%x, %x), kind=kOutput, calls=%matmul, "estimated_cycles":"1000"
  %m = f32[128,4]{1,0} fusion(%x), kind=kLoop, calls=%move, "estimated_cycles":"200"
  %c = f32[8,128]{0,1} copy(%x), "estimated_cycles":"30"
  %w = f32[8,128]{1,0} while(%x), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"5"}}
  %s = f32[2,128]{1,0} fusion(%x), kind=kCustom, calls=%all-reduce-scatter
  %y = bf16[8,128]{1,0} convert(%x)
  %p = (bf16[8,128]{1,0}, bf16[8,128]{1,0}) collective-permute-start(%y), source_target_pairs={{0,1},{1,0},{2,3},{3,2}}
  ROOT %r = f32[8,128]{1,0} all-reduce(%x), replica_groups=mesh['axis_0'=4,'axis_1'=2] {'axis_0'}, to_apply=%add
}
"""


@pytest.fixture
def module() -> OptimisedHlo:
    return OptimisedHlo(MODULE)


def test_cycles_are_counted_by_what_a_kernel_holds_and_how_often_it_runs(module):
    assert module.cycles == 1000 + 200 + 30 + 5 * 10
    assert cycles_by_class(module) == {"matmul": 1000, "copy": 230, "elementwise": 50}


def test_collectives_are_read_with_their_axes_bytes_and_trips(module):
    found = collectives(module, MESH)
    assert found == {
        ("all_gather", (("model", 2),), 8 * 128 * 4.0): 5,
        ("reduce_scatter", (("batch", 4),), 8 * 128 * 4.0): 1,
        ("all_permute", (("model", 2),), 8 * 128 * 2.0): 1,
        ("all_reduce", (("batch", 4),), 8 * 128 * 4.0): 1,
    }


@pytest.mark.parametrize(
    ("written", "axes"),
    [
        ("replica_groups={{0,1},{2,3},{4,5},{6,7}}", (("model", 2),)),
        ("replica_groups=[4,2]<=[8]", (("model", 2),)),
        ("replica_groups=[2,4]<=[4,2]T(1,0)", (("batch", 4),)),
        ("replica_groups=mesh['a'=4,'b'=2] {'a','b'}", (("batch", 4), ("model", 2))),
        ("replica_groups={{0,2},{1,3},{4,6},{5,7}}", (("batch", 2),)),
        ("replica_groups={}", (("batch", 4), ("model", 2))),
    ],
)
def test_groups_in_every_way_that_xla_writes_them(written, axes):
    text = MODULE.replace("replica_groups=[4,2]<=[8]", written)
    assert [c[1] for c in collectives(OptimisedHlo(text), MESH) if c[0] == "all_gather"] == [axes]


def test_operands_behind_the_comments_of_a_long_list_count():
    text = MODULE.replace("all-reduce(%x)", "all-reduce(%x, %x, %x, %x, %x, /*index=5*/%x)")
    assert collectives(OptimisedHlo(text), MESH)["all_reduce", (("batch", 4),), 6 * 8 * 128 * 4.0] == 1


def test_a_collective_beside_compute_counts_once_though_several_fusions_hold_a_part_of_it():
    gather = "all-gather(%x), replica_groups=[4,2]<=[8], dimensions={0}"
    chained = f'{gather}, frontend_attributes={{chain_id="1"}}'
    part = f"  %x = f32[8,128]{{1,0}} parameter(0)\n  %g = f32[16,128]{{1,0}} {chained}\n"
    text = MODULE.replace(gather, f"{chained}\n  %c = f32[8,128]{{1,0}} fusion(%x), kind=kCustom, calls=%beside")
    text = f"\n%beside (x: f32[8,128]) -> f32[16,128] {{\n{part}}}\n{text}"
    assert text.count("all-gather(") == 2
    assert collectives(OptimisedHlo(text), MESH)["all_gather", (("model", 2),), 8 * 128 * 4.0] == 5


def test_links_are_priced_by_the_simulators_formulas():
    ours = collective_seconds(mesh_links(MESH), "all_gather", 4e6, ("batch",))
    assert np.isclose(seconds(("all_gather", (("batch", 4),), 4e6), MESH), ours)
    assert seconds(("all_permute", (), 4e6), MESH) == 0


def test_a_kernel_that_came_with_the_program_takes_the_seconds_of_the_flop_or_bytes_that_it_states():
    given = """ENTRY %main (x: f32[8]) -> f32[8] {
  %f = f32[8] fusion(%x), "estimated_cycles":"3000"
  %a = f32[8] custom-call(), custom_call_target="tpu_custom_call", "cost_estimate":{"flops":"N","bytes_accessed":"B"}
  %b = f32[8] custom-call(%a), custom_call_target="tpu_custom_call", backend_config={}
  ROOT %c = f32[8] custom-call(%b), custom_call_target="ConcatBitcast"
}
"""  # fmt: skip

    def taken_s(flop, moved):
        module = OptimisedHlo(given.replace('"N"', f'"{flop}"').replace('"B"', f'"{moved}"'))
        assert [(k.flop, k.bytes, k.times) for k in module.given_kernels] == [(flop, moved, 1), (0, 0, 1)]
        return compute_seconds(module, SimpleNamespace(device_kind="TPU v5 lite"))

    v5e = device("tpu_v5e")
    assert taken_s(0, 0) == pytest.approx(2e-6)
    assert taken_s(10**12, 8) == pytest.approx(2e-6 + 1e12 / (v5e.peak("bf16") * v5e.efficiency("bf16")))
    assert taken_s(10, 10**9) == pytest.approx(2e-6 + 1e9 / (v5e.hbm_bytes_per_s * v5e.hbm_efficiency))
