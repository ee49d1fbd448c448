"""Is PartIR:HLO what the paper's listings show, and does the program so written compute what it should?"""

from __future__ import annotations

import jax
import jax.numpy as jnp

import autopart as ap
from tests.golden.check import check

MESH = ap.Mesh({"B": 4, "M": 2})
ARGS = tuple(jax.ShapeDtypeStruct(s, "float32") for s in ((256, 8), (8, 16), (16, 8)))
BP = ap.ManualPartition({"x": 0}, axis="B")
MP = ap.ManualPartition({"w1": 1}, axis="M")
Z3 = ap.ManualPartition({"w1": 0, "w2": 1}, axis="B")


def chain(x, w1, w2):
    return (x @ w1) @ w2


def test_listing_3_data_parallel():
    check(
        chain, MESH, [BP], ARGS,
        collectives={},
        hlo="""
        func @main(%x: tensor<64x8xf32>, %w1: tensor<8x16xf32>, %w2: tensor<16x8xf32>) mesh {"B":4, "M":2} {
          %3 = dot_general(%x, %w1) : tensor<64x16xf32>
          %4 = dot_general(%3, %w2) : tensor<64x8xf32>
          return %4
        }
        """,
    )  # fmt: skip


def test_listing_4_data_parallel_and_sharded():
    check(
        chain, MESH, [BP, MP], ARGS,
        collectives={"all_reduce": 1},
        hlo="""
        func @main(%x: tensor<64x8xf32>, %w1: tensor<8x8xf32>, %w2: tensor<8x8xf32>) mesh {"B":4, "M":2} {
          %3 = dot_general(%x, %w1) : tensor<64x8xf32>
          %4 = dot_general(%3, %w2) : tensor<64x8xf32>
          %4.r0 = all_reduce <"M"> %4 : tensor<64x8xf32>
          return %4.r0
        }
        """,
    )  # fmt: skip


def test_listing_5_fully_sharded():
    check(
        chain, MESH, [BP, MP, Z3], ARGS,
        collectives={"all_gather": 2, "all_reduce": 1},
        hlo="""
        func @main(%x: tensor<64x8xf32>, %w1: tensor<2x8xf32>, %w2: tensor<8x2xf32>) mesh {"B":4, "M":2} {
          %w1.r0 = all_gather [{"B"}, {}] %w1 : tensor<8x8xf32>
          %3 = dot_general(%x, %w1.r0) : tensor<64x8xf32>
          %w2.r0 = all_gather [{}, {"B"}] %w2 : tensor<8x8xf32>
          %4 = dot_general(%3, %w2.r0) : tensor<64x8xf32>
          %4.r0 = all_reduce <"M"> %4 : tensor<64x8xf32>
          return %4.r0
        }
        """,
    )  # fmt: skip


def test_sharded_activations_turn_the_all_reduce_into_a_reduce_scatter():
    """Section 2.3: input and output tiled on the model axis too."""
    activations = ap.ManualPartition({"x": 1, "outputs": 1}, axis="M")
    check(
        chain, MESH, [BP, MP, activations], ARGS,
        collectives={"all_gather": 1, "reduce_scatter": 1},
        hlo="""
        func @main(%x: tensor<64x4xf32>, %w1: tensor<8x8xf32>, %w2: tensor<8x8xf32>) mesh {"B":4, "M":2} {
          %x.r0 = all_gather [{}, {"M"}] %x : tensor<64x8xf32>
          %3 = dot_general(%x.r0, %w1) : tensor<64x8xf32>
          %4 = dot_general(%3, %w2) : tensor<64x8xf32>
          %4.r0 = reduce_scatter [{}, {"M"}] %4 : tensor<64x4xf32>
          return %4.r0
        }
        """,
    )  # fmt: skip


def test_lowering_example_of_section_6():
    """The residual: slices and gathers of equal layout cancel."""

    def residual(x, w1, w2):
        return (x @ w1) @ w2 + x

    check(
        residual, MESH, [BP, MP], ARGS,
        collectives={"all_reduce": 1},
        hlo="""
        func @main(%x: tensor<64x8xf32>, %w1: tensor<8x8xf32>, %w2: tensor<8x8xf32>) mesh {"B":4, "M":2} {
          %3 = dot_general(%x, %w1) : tensor<64x8xf32>
          %4 = dot_general(%3, %w2) : tensor<64x8xf32>
          %4.r0 = all_reduce <"M"> %4 : tensor<64x8xf32>
          %5 = add(%4.r0, %x) : tensor<64x8xf32>
          return %5
        }
        """,
    )  # fmt: skip


def test_transposed_operand_kept_whole_is_gathered():
    """Section 8: x times its transpose, with the transpose tagged and kept whole."""

    def gram(x):
        return x @ ap.tag("transposed", x.T)

    schedule = [
        ap.ManualPartition({"transposed": ap.REPLICATED}, axis="M"),
        ap.ManualPartition({"x": 0}, axis="M"),
    ]
    check(
        gram, ap.Mesh({"M": 2}), schedule, [jax.ShapeDtypeStruct((256, 256), "float32")],
        collectives={"all_gather": 1},
        hlo="""
        func @main(%x: tensor<128x256xf32>) mesh {"M":2} {
          %1 = transpose(%x) {permutation=[1,0]} : tensor<256x128xf32>
          %2 = tag(%1) : tensor<256x128xf32>
          %2.r0 = all_gather [{}, {"M"}] %2 : tensor<256x256xf32>
          %3 = dot_general(%x, %2.r0) : tensor<128x256xf32>
          return %3
        }
        """,
    )  # fmt: skip


def test_scan_keeps_the_gather_of_a_layer_in_its_body():
    def fun(w, x):
        return jax.lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, w)[0]

    args = (jax.ShapeDtypeStruct((5, 8, 8), "float32"), jax.ShapeDtypeStruct((16, 8), "float32"))
    schedule = [ap.ManualPartition({"x": 0}, axis="B"), ap.ManualPartition({"w": 1}, axis="B")]
    check(
        fun, MESH, schedule, args,
        collectives={"all_gather": 5},
        trips=5,
        hlo="""
        func @main(%w: tensor<5x2x8xf32>, %x: tensor<4x8xf32>) mesh {"B":4, "M":2} {
          %2 = constant 0 : tensor<i32>
          while() trips=5 {
            %3 = carry(%2) : tensor<i32>
            %5 = carry(%x) : tensor<4x8xf32>
            condition {
              %7 = constant 5 : tensor<i32>
              %8 = compare(%3, %7) {comparison_direction=LT} : tensor<i1>
              condition(%8)
            }
            body {
              %9 = constant 0 : tensor<i32>
              %10 = constant 0 : tensor<i32>
              %11 = dynamic_slice(%w, %3, %9, %10) : tensor<1x2x8xf32>
              %12 = reshape(%11) : tensor<2x8xf32>
              %12.r0 = all_gather [{"B"}, {}] %12 : tensor<8x8xf32>
              %13 = dot_general(%5, %12.r0) : tensor<4x8xf32>
              %14 = tanh(%13) : tensor<4x8xf32>
              %15 = constant 1 : tensor<i32>
              %16 = add(%3, %15) : tensor<i32>
              yield %16, %14
            }
          } -> %4, %6
          return %6
        }
        """,
    )  # fmt: skip
