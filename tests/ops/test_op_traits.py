"""Does every op say what it costs, does XLA count the same, and is nothing priced in silence?"""

from __future__ import annotations

import ast
from contextlib import ExitStack
from pathlib import Path

import pytest

import autopart as ap
from autopart.base.registry import RegistryError
from autopart.core.op import OpSpec, TensorType
from autopart.core.ops import traits as op_traits
from autopart.core.ops.example_import import example_op
from autopart.core.ops.rule import CUSTOM_CALLS, Rule, blocked, known_kinds, rule, rules, traits_of
from autopart.core.ops.rules.example_text import comparator, op
from autopart.costmodel import estimate
from autopart.costmodel.compiled.facts.op_classes import ELEMENTWISE, OPAQUE, op_class, op_work
from autopart.costmodel.flop_table import flop_row, flop_table

ROOT = Path(__file__).parents[2]


def f32(*shape: int) -> TensorType:
    return TensorType(shape, "f32")


def flop(kind: str, types: str, attributes: str = "", region: str = "") -> float | None:
    found = op_work(example_op(op(kind, types, attributes, region)).spec)
    return None if found is None else found.matrix_flop + found.vector_flop


COUNTED_BY_SOME_RELEASES = {"chlo.asin": {120.0, 168.0}}
"""What XLA of one release or another counts in an example, where they compute it by different formulas."""


@pytest.mark.parametrize("found", [r for r in rules() if r.examples], ids=lambda r: r.kind)
def test_flop_of_every_example_are_what_xla_counts_or_the_rule_says_why_not(found):
    rows = [flop_row(found, example) for example in found.examples]
    known = COUNTED_BY_SOME_RELEASES.get(found.kind, set())
    apart = [row for row in rows if not row.agrees and not {row.ours, row.xla} <= known]
    assert not apart or found.traits.flop_reason, apart
    assert apart or not found.traits.flop_reason, f"{found.kind} agrees with XLA: {found.traits.flop_reason!r} is stale"


def test_every_rule_that_can_be_partitioned_states_its_traits():
    assert [r.kind for r in rules() if r.traits is op_traits.UNKNOWN_FLOP and not r.blocked_because] == []


@pytest.mark.parametrize("register", [lambda: rule("new_op"), lambda: blocked("new_op", reason="", family="")])
def test_a_rule_without_traits_cannot_be_registered(register):
    with pytest.raises(TypeError, match="traits"):
        register()


def test_an_op_without_a_rule_is_opaque_and_of_unknown_flop():
    spec = OpSpec("nobody_knows", {}, (f32(8),), (f32(8),))
    assert (op_class(spec), op_work(spec)) == (OPAQUE, None)
    assert not traits_of(spec).cheap_to_regather


COMPUTES_WITH = {
    "core/op.py": "names of reductions",
    "core/importer/trip_count.py": "evaluates a loop's counter",
    "core/passes/recompute/again.py": "copies ops, but for those that cannot run twice",
    "core/passes/recompute/scans.py": "reads how a scan stacks what it leaves",
    "core/passes/recompute/turns.py": "evaluates the index that a scan's turn writes",
    "core/passes/borders.py": "moves slices through the ops that move elements",
    "core/passes/bordered_windows.py": "cuts what windows leave",
    "core/passes/cancelled_views.py": "takes views of one array back",
    "core/passes/cuts.py": "cuts what moves elements",
    "api/kernels/pallas_work.py": "evaluates in which steps of a grid a kernel computes",
    "api/kernels/body_dims.py": "follows dims through the primitives of jax in a kernel",
    "api/kernels/running_sums.py": "follows sums through the primitives of jax in a kernel",
    "api/plan/as_jax.py": "says which ops jax asks for the type of their result",
    "api/measured/profile.py": "sorts the kernels of a profile, which have XLA's names",
    "core/passes/known_indices.py": "writes look-ups at known places by other ops",
    "core/passes/known_numbers.py": "evaluates indices that are known beforehand",
    "core/passes/combined_slices.py": "joins what is computed of slices by other ops",
    "core/passes/empty_arrays.py": "joins what is left where operands have no elements",
    "core/passes/known_windows.py": "writes windows at known places by other ops",
    "core/passes/folded_padding.py": "folds padding into the ops that pad and cut",
    "core/passes/joined_pads.py": "writes sums of pads as a concatenation",
    "core/passes/split_cumulative.py": "writes cumulative ops, which each release of jax spells in its way, in groups",
    "core/passes/refilled_slices.py": "writes what is cut off and filled up again as a choice by place",
    "core/passes/index_positions.py": "follows positions through the ops that keep them",
    "core/passes/scanned_rows.py": "follows a split batch to the slices that read a step of it",
    "spmd/emission/reductions.py": "emits the reducer of a collective",
    "spmd/for_xla/index_ranges.py": "emits slices and updates in place of others",
    "spmd/for_xla/intervals.py": "evaluates bounds of indices",
}
"""Files outside `core/rules` that may name several kinds of op, since they compute what the ops compute."""


def test_tables_keyed_by_the_names_of_ops_stand_with_the_rules():
    """Elsewhere no set, tuple, list or dict names two ops of a program."""
    collectives = {"all_reduce", "all_gather", "all_to_all", "reduce_scatter", "collective_permute"}
    names = set(known_kinds()) - collectives - {r.kind for r in rules() if r.structural}
    found = []
    for path in sorted((ROOT / "autopart").rglob("*.py")):
        if path.parent.name == "rules" or str(path.relative_to(ROOT / "autopart")) in COMPUTES_WITH:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Set | ast.Tuple | ast.List):
                entries = node.elts
            elif isinstance(node, ast.Dict):
                entries = [key for key in node.keys if key is not None]
            else:
                continue
            words = [e.value for e in entries if isinstance(e, ast.Constant) and e.value in names]
            if len(words) > 1:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {words}")
    assert found == []


def test_matrix_products_of_every_spelling_cost_two_flop_per_multiply_add():
    dims = "lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1], "
    ragged = f"ragged_dot_dimension_numbers = #chlo.ragged_dot<{dims}rhs_contracting_dimensions = [1], "
    ragged += "lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>"
    assert flop("dot", "64x32xf32, 32x16xf32 -> 64x16xf32") == 2 * 64 * 32 * 16
    assert flop("einsum", "64x32xf32, 32x16xf32 -> 64x16xf32", 'einsum_config = "ij,jk->ik"') == 2 * 64 * 32 * 16
    assert flop("einsum", "8x64x32xf32, 32xf32 -> 8x64xf32", 'einsum_config = "...j,j->..."') == 2 * 8 * 64 * 32
    assert flop("chlo.ragged_dot", "64x32xf32, 4x32x16xf32, 4xi32 -> 64x16xf32", ragged) == 2 * 64 * 32 * 16


def test_a_sort_costs_a_logarithm_of_the_line_and_not_of_the_array():
    kinds = "dimension = 1 : i64, is_stable = true", comparator("LT", "f32")
    assert flop("sort", "4x1024xf32 -> 4x1024xf32", *kinds) == 4 * 1024 * 10
    assert flop("sort", "4x1xf32 -> 4x1xf32", *kinds) == 0


@pytest.mark.parametrize(("algorithm", "dtype", "words"), [("THREE_FRY", "ui32", 50), ("PHILOX", "ui64", 2 * 25)])
def test_random_bits_cost_by_what_is_drawn_and_not_by_the_key(algorithm, dtype, words):
    kind = f"rng_algorithm = #stablehlo<rng_algorithm {algorithm}>"
    assert flop("rng_bit_generator", f"2xui64 -> 2xui64, 64x32x{dtype}", kind) == 64 * 32 * words


def test_transforms_cost_by_their_length():
    complex_, real = "fft_type = #stablehlo<fft_type FFT>", "fft_type = #stablehlo<fft_type RFFT>"
    length = ", fft_length = array<i64: 1024>"
    assert flop("fft", "8x1024xcomplex<f32> -> 8x1024xcomplex<f32>", complex_ + length) == 5 * 8 * 1024 * 10
    assert flop("fft", "8x1024xf32 -> 8x513xcomplex<f32>", real + length) == 2.5 * 8 * 1024 * 10


def test_a_scatter_costs_by_its_updates_also_where_they_outnumber_the_table():
    numbers = "update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0]"
    attributes = f"scatter_dimension_numbers = #stablehlo.scatter<{numbers}, index_vector_dim = 1>"
    region = '^bb0(%a: tensor<f32>, %b: tensor<f32>): %c = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> '
    region += 'tensor<f32> "stablehlo.return"(%c) : (tensor<f32>) -> ()'
    assert flop("scatter", "10x8xf32, 4096x1xi32, 4096x8xf32 -> 10x8xf32", attributes, region) == 4096 * 8


@pytest.mark.parametrize(
    ("target", "operands", "expected"),
    [
        ("lapack_spotrf_ffi", (f32(4, 30, 30),), 4 * 30**3 / 3),
        ("cusolver_getrf_ffi", (f32(30, 30),), 2 * 30**3 / 3),
        ("Qr", (f32(60, 30),), None),
        ("lapack_sgeqrf_ffi", (f32(60, 30),), 2 * 60 * 30**2 - 2 * 30**3 / 3),
        ("lapack_sgeqrf_ffi", (f32(30, 60),), 2 * 60 * 30**2 - 2 * 30**3 / 3),
        ("hipsolver_ungqr_ffi", (f32(60, 30), f32(30)), 2 * 60 * 30**2 - 2 * 30**3 / 3),
        ("lapack_ssyevd_ffi", (f32(30, 30),), 9 * 30**3),
        ("lapack_strsm_ffi", (f32(30, 30), f32(30, 7)), 30 * 30 * 7),
        ("someones_kernel", (f32(30, 30),), None),
    ],
)
def test_factorizations_cost_what_their_algorithms_do(target, operands, expected):
    batch = {"mhlo.frontend_attributes": {"num_batch_dims": "1"}} if target != "Qr" else {}
    found = op_work(OpSpec("custom_call", {"call_target_name": target, **batch}, operands, operands[:1]))
    assert (found and found.vector_flop) == (expected and pytest.approx(expected))


# ---- in estimates

PROGRAM = """
func.func @main(%q: tensor<64x128xf32>, %k: tensor<4096x128xf32>) -> tensor<64x128xf32> {
  %0 = stablehlo.negate %q : tensor<64x128xf32>
  %1 = "stablehlo.custom_call"(%0, %k) {call_target_name = "test_kernel"}
    : (tensor<64x128xf32>, tensor<4096x128xf32>) -> tensor<64x128xf32>
  %2 = stablehlo.negate %1 : tensor<64x128xf32>
  return %2 : tensor<64x128xf32>
}
"""


def estimate_of(text: str, folder: Path, schedule=(), mesh: dict[str, int] | None = None) -> ap.Estimate:
    path = folder / "program.mlir"
    path.write_text(text)
    mesh_ = ap.Mesh(mesh or {"x": 1}, device="tpu_v5e")
    return estimate(ap.jit(ap.load(path), mesh_, list(schedule)).lower().program)


@pytest.fixture
def kernel():
    """Registers `test_kernel` with traits, for the length of a test or until it is registered again."""
    with ExitStack() as stack:

        def register(traits: op_traits.Traits) -> None:
            stack.close()
            own = Rule("custom_call @test_kernel", "here", lambda spec: (), traits=traits)
            stack.enter_context(CUSTOM_CALLS.temporarily("test_kernel", own))

        yield register


def test_an_estimate_names_the_ops_whose_flop_nobody_knows(tmp_path, kernel):
    found = estimate_of(PROGRAM, tmp_path)
    assert found.unknown_ops == ("custom_call @test_kernel (1 x)",)
    assert str(found).splitlines()[-1] == "no flop are known of: custom_call @test_kernel (1 x)"
    assert "test_kernel" in found.to_json()
    assert found.flop == 2 * 64 * 128
    kernel(op_traits.Opaque(flop=lambda spec: 0.0))
    known = estimate_of(PROGRAM, tmp_path)
    assert known.unknown_ops == ()
    assert "known" not in str(known)
    assert known.bytes == found.bytes > 4 * 4096 * 128


@pytest.mark.parametrize("matrix", [True, False])
def test_a_kernel_that_states_its_flop_takes_the_time_of_its_unit(tmp_path, kernel, matrix):
    stated = 1e12
    kernel(op_traits.Opaque(flop=lambda spec: stated, matrix=matrix))
    found = estimate_of(PROGRAM, tmp_path)
    device = ap.costmodel.device("tpu_v5e")
    rate = device.peak_flop_per_s["bf16"] if matrix else device.vector_flop_per_s
    assert found.flop == stated + 2 * 64 * 128
    assert stated / rate <= found.step_s < 2.5 * stated / rate


def test_a_kernel_may_read_part_of_its_operands_and_no_more_than_all(tmp_path, kernel):
    kernel(op_traits.Opaque(flop=lambda spec: 0.0))
    whole = estimate_of(PROGRAM, tmp_path).bytes
    kernel(op_traits.Opaque(flop=lambda spec: 0.0, read_bytes=lambda spec: sum(t.bytes for t in spec.operands) / 4))
    assert estimate_of(PROGRAM, tmp_path).bytes == pytest.approx(whole - 0.75 * 4 * 4096 * 128)
    kernel(op_traits.Opaque(flop=lambda spec: 0.0, read_bytes=lambda spec: 1e9))
    with pytest.raises(RegistryError, match=r"(?s)custom_call @test_kernel.*reads 1e\+09 bytes.*what is|counted once"):
        estimate_of(PROGRAM, tmp_path)


RAGGED = """
func.func @main(%x: tensor<4096x512xf32>, %w: tensor<8x512x2048xf32>, %n: tensor<8xi32>) -> tensor<4096x2048xf32> {
  %0 = "chlo.ragged_dot"(%x, %w, %n) {ragged_dot_dimension_numbers = #chlo.ragged_dot<
      lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1],
      rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>}
    : (tensor<4096x512xf32>, tensor<8x512x2048xf32>, tensor<8xi32>) -> tensor<4096x2048xf32>
  return %0 : tensor<4096x2048xf32>
}
"""


def test_the_product_of_experts_takes_the_time_of_a_matrix_product(tmp_path):
    found = estimate_of(RAGGED, tmp_path)
    assert found.flop == 2 * 4096 * 512 * 2048
    assert found.compute_s > found.flop / ap.costmodel.device("tpu_v5e").peak_flop_per_s["bf16"]


@pytest.mark.parametrize(("inputs", "ways"), [({"arg0": 0}, 2), ({"arg0": 1}, 2), ({"arg1": 2}, 2), ({"arg1": 0}, 1)])
def test_tokens_features_and_columns_divide_the_flop_of_experts_and_groups_do_not(tmp_path, inputs, ways):
    """A device that holds half of the groups multiplies the rows of the other half by zeros."""
    tactic = ap.ManualPartition(inputs, axis="e")
    found = estimate_of(RAGGED, tmp_path, [tactic], {"e": 2})
    matrix = float(found.simulation.graph.nodes["matrix_flop"] @ found.simulation.node_trips)
    assert matrix == 2 * 4096 * 512 * 2048 / ways


def test_the_table_shows_both_counts_and_the_reason(capsys, monkeypatch):
    monkeypatch.setattr(
        "autopart.costmodel.flop_table.rules", lambda: [r for r in rules() if r.kind in ("dot", "sine")]
    )
    lines = flop_table().splitlines()
    assert lines[1].split() == ["dot", "(f32[4,6],", "f32[6,2])", "->", "f32[4,2]", "96", "96"]
    assert lines[-1].endswith("4752        24  operations of the vector unit; XLA counts the function as one")
    from autopart.__main__ import main

    assert main(["ops", "--flop"]) == 0
    assert "sine" in capsys.readouterr().out


def test_only_those_ops_are_cloned_per_use_that_read_no_array():
    assert {r.kind for r in rules() if r.traits.cloned_per_use} == {
        "constant", "chlo.constant", "iota", "broadcast_in_dim",
    }  # fmt: skip


def test_elementwise_is_said_and_never_fallen_back_to():
    kinds = [r for r in rules() if r.examples]
    found = {r.kind for r in kinds if op_class(example_op(r.examples[0]).spec) == ELEMENTWISE}
    stated = {r.kind for r in kinds if isinstance(r.traits, op_traits.Elementwise)}
    assert found == stated
