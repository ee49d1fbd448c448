"""Is PartIR:HLO what the paper's listings show?"""

from __future__ import annotations

import textwrap

import jax
import jax.numpy as jnp

import autopart as ap

MESH = ap.Mesh({"B": 4, "M": 2})
ARGS = tuple(jax.ShapeDtypeStruct(s, "float32") for s in ((256, 8), (8, 16), (16, 8)))
BP = ap.ManualPartition({"x": 0}, axis="B")
MP = ap.ManualPartition({"w1": 1}, axis="M")
Z3 = ap.ManualPartition({"w1": 0, "w2": 1}, axis="B")


def chain(x, w1, w2):
    return (x @ w1) @ w2


def hlo(schedule, fun=chain, args=ARGS, mesh=MESH):
    return ap.jit(fun, mesh, schedule).lower(*args).as_text("hlo")


def check(text, expected):
    assert text == textwrap.dedent(expected).strip()


def test_listing_3_data_parallel():
    check(
        hlo([BP]),
        """
        func @main(%x: tensor<64x8xf32>, %w1: tensor<8x16xf32>, %w2: tensor<16x8xf32>) mesh {"B":4, "M":2} {
          %3 = dot_general(%x, %w1) : tensor<64x16xf32>
          %4 = dot_general(%3, %w2) : tensor<64x8xf32>
          return %4
        }
        """,
    )


def test_listing_4_data_parallel_and_sharded():
    check(
        hlo([BP, MP]),
        """
        func @main(%x: tensor<64x8xf32>, %w1: tensor<8x8xf32>, %w2: tensor<8x8xf32>) mesh {"B":4, "M":2} {
          %3 = dot_general(%x, %w1) : tensor<64x8xf32>
          %4 = dot_general(%3, %w2) : tensor<64x8xf32>
          %4.r0 = all_reduce <"M"> %4 : tensor<64x8xf32>
          return %4.r0
        }
        """,
    )


def test_listing_5_fully_sharded():
    check(
        hlo([BP, MP, Z3]),
        """
        func @main(%x: tensor<64x8xf32>, %w1: tensor<2x8xf32>, %w2: tensor<8x2xf32>) mesh {"B":4, "M":2} {
          %w1.r0 = all_gather [{"B"}, {}] %w1 : tensor<8x8xf32>
          %3 = dot_general(%x, %w1.r0) : tensor<64x8xf32>
          %w2.r0 = all_gather [{}, {"B"}] %w2 : tensor<8x8xf32>
          %4 = dot_general(%3, %w2.r0) : tensor<64x8xf32>
          %4.r0 = all_reduce <"M"> %4 : tensor<64x8xf32>
          return %4.r0
        }
        """,
    )


def test_sharded_activations_turn_the_all_reduce_into_a_reduce_scatter():
    """Section 2.3: input and output tiled on the model axis too."""
    activations = ap.ManualPartition({"x": 1, "outputs": 1}, axis="M")
    check(
        hlo([BP, MP, activations]),
        """
        func @main(%x: tensor<64x4xf32>, %w1: tensor<8x8xf32>, %w2: tensor<8x8xf32>) mesh {"B":4, "M":2} {
          %x.r0 = all_gather [{}, {"M"}] %x : tensor<64x8xf32>
          %3 = dot_general(%x.r0, %w1) : tensor<64x8xf32>
          %4 = dot_general(%3, %w2) : tensor<64x8xf32>
          %4.r0 = reduce_scatter [{}, {"M"}] %4 : tensor<64x4xf32>
          return %4.r0
        }
        """,
    )


def test_lowering_example_of_section_6():
    """The residual: slices and gathers of equal layout cancel."""

    def residual(x, w1, w2):
        return (x @ w1) @ w2 + x

    check(
        hlo([BP, MP], residual),
        """
        func @main(%x: tensor<64x8xf32>, %w1: tensor<8x8xf32>, %w2: tensor<8x8xf32>) mesh {"B":4, "M":2} {
          %3 = dot_general(%x, %w1) : tensor<64x8xf32>
          %4 = dot_general(%3, %w2) : tensor<64x8xf32>
          %4.r0 = all_reduce <"M"> %4 : tensor<64x8xf32>
          %5 = add(%4.r0, %x) : tensor<64x8xf32>
          return %5
        }
        """,
    )


def test_transposed_operand_kept_whole_is_gathered():
    """Section 8: x times its transpose, with the transpose tagged and kept whole."""

    def gram(x):
        return x @ ap.tag("transposed", x.T)

    schedule = [
        ap.ManualPartition({"transposed": ap.REPLICATED}, axis="M"),
        ap.ManualPartition({"x": 0}, axis="M"),
    ]
    check(
        hlo(schedule, gram, (jax.ShapeDtypeStruct((256, 256), "float32"),), ap.Mesh({"M": 2})),
        """
        func @main(%x: tensor<128x256xf32>) mesh {"M":2} {
          %1 = transpose(%x) {permutation=[1,0]} : tensor<256x128xf32>
          %2 = tag(%1) : tensor<256x128xf32>
          %2.r0 = all_gather [{}, {"M"}] %2 : tensor<256x256xf32>
          %3 = dot_general(%x, %2.r0) : tensor<128x256xf32>
          return %3
        }
        """,
    )


def test_scan_keeps_the_gather_of_a_layer_in_its_body():
    def fun(w, x):
        return jax.lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, w)[0]

    args = (jax.ShapeDtypeStruct((5, 8, 8), "float32"), jax.ShapeDtypeStruct((16, 8), "float32"))
    schedule = [ap.ManualPartition({"x": 0}, axis="B"), ap.ManualPartition({"w": 1}, axis="B")]
    text = hlo(schedule, fun, args)
    body = text[text.index("body {") : text.index("yield")]
    assert "trips=5" in text
    assert 'all_gather [{"B"}, {}]' in body
    assert "tensor<16x8xf32>" not in text
