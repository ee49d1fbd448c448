"""Is PartIR:Core what a reader of the paper expects, and does the program so written compute what it should?"""

from __future__ import annotations

import jax

import autopart as ap
from tests.golden.check import check

MESH = ap.Mesh({"B": 4, "M": 2})
ARGS = tuple(jax.ShapeDtypeStruct(s, "float32") for s in ((256, 8), (8, 16), (16, 8)))
BP = ap.ManualPartition({"x": 0}, axis="B")
MP = ap.ManualPartition({"w1": 1}, axis="M")
Z3 = ap.ManualPartition({"w1": 0, "w2": 1}, axis="B")


def chain(x, w1, w2):
    return (x @ w1) @ w2


def test_matmul_chain_with_a_tiling_loop():
    """Listing 8, each op in its own loop."""
    check(
        chain, MESH, [BP], ARGS,
        collectives={},
        core="""
        func @main(%x: tensor<256x8xf32>, %w1: tensor<8x16xf32>, %w2: tensor<16x8xf32>) mesh {"B":4, "M":2} {
          %xt = loop "B" [#tile<0>] (%rB: range<4>) {
            %xs = slice 0 %x[%rB] : tensor<64x8xf32>
            yield %xs
          } : tensor<256x8xf32>
          %3 = loop "B" [#tile<0>] (%rB: range<4>) {
            %3.0 = slice 0 %xt[%rB] : tensor<64x8xf32>
            %3.y = dot_general(%3.0, %w1) : tensor<64x16xf32>
            yield %3.y
          } : tensor<256x16xf32>
          %4 = loop "B" [#tile<0>] (%rB: range<4>) {
            %4.0 = slice 0 %3[%rB] : tensor<64x16xf32>
            %4.y = dot_general(%4.0, %w2) : tensor<64x8xf32>
            yield %4.y
          } : tensor<256x8xf32>
          return %4
        }
        """,
    )  # fmt: skip


def test_inference_from_partial_match_slices_the_other_operand():
    """Section 5.2.2: tiling w1 alone slices w2 too, and the second matmul becomes a sum."""
    check(
        chain, MESH, [BP, MP], ARGS,
        collectives={"all_reduce": 1},
        core="""
        func @main(%x: tensor<256x8xf32>, %w1: tensor<8x16xf32>, %w2: tensor<16x8xf32>) mesh {"B":4, "M":2} {
          %xt = loop "B" [#tile<0>] (%rB: range<4>) {
            %xs = slice 0 %x[%rB] : tensor<64x8xf32>
            yield %xs
          } : tensor<256x8xf32>
          %w1t = loop "M" [#tile<1>] (%rM: range<2>) {
            %w1s = slice 1 %w1[%rM] : tensor<8x8xf32>
            yield %w1s
          } : tensor<8x16xf32>
          %w2t = loop "M" [#tile<0>] (%rM: range<2>) {
            %w2s = slice 0 %w2[%rM] : tensor<8x8xf32>
            yield %w2s
          } : tensor<16x8xf32>
          %3 = loop "B" [#tile<0>] (%rB: range<4>) {
            yield loop "M" [#tile<1>] (%rM: range<2>) {
              %3.0 = slice 0 %xt[%rB] : tensor<64x8xf32>
              %3.1 = slice 1 %w1t[%rM] : tensor<8x8xf32>
              %3.y = dot_general(%3.0, %3.1) : tensor<64x8xf32>
              yield %3.y
            }
          } : tensor<256x16xf32>
          %4 = loop "B" [#tile<0>] (%rB: range<4>) {
            yield loop "M" [#sum] (%rM: range<2>) {
              %4.0 = slice 0 %3[%rB] : tensor<64x16xf32>
              %4.0' = slice 1 %4.0[%rM] : tensor<64x8xf32>
              %4.1 = slice 0 %w2t[%rM] : tensor<8x8xf32>
              %4.y = dot_general(%4.0', %4.1) : tensor<64x8xf32>
              yield %4.y
            }
          } : tensor<256x8xf32>
          return %4
        }
        """,
    )  # fmt: skip


def test_deep_tiling_keeps_the_earlier_axis_outside():
    """Appendix B.1.2: tiling further never undoes."""
    check(
        chain, MESH, [BP, MP, Z3], ARGS,
        collectives={"all_reduce": 1, "all_gather": 2},
        core="""
        func @main(%x: tensor<256x8xf32>, %w1: tensor<8x16xf32>, %w2: tensor<16x8xf32>) mesh {"B":4, "M":2} {
          %xt = loop "B" [#tile<0>] (%rB: range<4>) {
            %xs = slice 0 %x[%rB] : tensor<64x8xf32>
            yield %xs
          } : tensor<256x8xf32>
          %w1t = loop "M" [#tile<1>] (%rM: range<2>) {
            yield loop "B" [#tile<0>] (%rB: range<4>) {
              %w1s = slice 1 %w1[%rM] : tensor<8x8xf32>
              %w1s' = slice 0 %w1s[%rB] : tensor<2x8xf32>
              yield %w1s'
            }
          } : tensor<8x16xf32>
          %w2t = loop "M" [#tile<0>] (%rM: range<2>) {
            yield loop "B" [#tile<1>] (%rB: range<4>) {
              %w2s = slice 0 %w2[%rM] : tensor<8x8xf32>
              %w2s' = slice 1 %w2s[%rB] : tensor<8x2xf32>
              yield %w2s'
            }
          } : tensor<16x8xf32>
          %3 = loop "B" [#tile<0>] (%rB: range<4>) {
            yield loop "M" [#tile<1>] (%rM: range<2>) {
              %3.0 = slice 0 %xt[%rB] : tensor<64x8xf32>
              %3.1 = slice 1 %w1t[%rM] : tensor<8x8xf32>
              %3.y = dot_general(%3.0, %3.1) : tensor<64x8xf32>
              yield %3.y
            }
          } : tensor<256x16xf32>
          %4 = loop "B" [#tile<0>] (%rB: range<4>) {
            yield loop "M" [#sum] (%rM: range<2>) {
              %4.0 = slice 0 %3[%rB] : tensor<64x16xf32>
              %4.0' = slice 1 %4.0[%rM] : tensor<64x8xf32>
              %4.1 = slice 0 %w2t[%rM] : tensor<8x8xf32>
              %4.y = dot_general(%4.0', %4.1) : tensor<64x8xf32>
              yield %4.y
            }
          } : tensor<256x8xf32>
          return %4
        }
        """,
    )  # fmt: skip


def test_conflict_leaves_the_op_alone():
    """Section 5.2.3: two tilings in one tactic match two mappings; the matmul stays whole and is reported."""
    lowered = check(
        chain, MESH, [ap.ManualPartition({"x": 0, "w1": 1}, axis="B")], ARGS,
        collectives={"all_gather": 2},
        core="""
        func @main(%x: tensor<256x8xf32>, %w1: tensor<8x16xf32>, %w2: tensor<16x8xf32>) mesh {"B":4, "M":2} {
          %xt = loop "B" [#tile<0>] (%rB: range<4>) {
            %xs = slice 0 %x[%rB] : tensor<64x8xf32>
            yield %xs
          } : tensor<256x8xf32>
          %w1t = loop "B" [#tile<1>] (%rB: range<4>) {
            %w1s = slice 1 %w1[%rB] : tensor<8x4xf32>
            yield %w1s
          } : tensor<8x16xf32>
          %3 = dot_general(%xt, %w1t) : tensor<256x16xf32>
          %4 = dot_general(%3, %w2) : tensor<256x8xf32>
          return %4
        }
        """,
    )  # fmt: skip
    (conflict,) = lowered.metadata.tactics[0].conflicts
    assert conflict.startswith('dot_general on "B": (0, -1) -> (0,) or (-1, 1) -> (1,)')
    assert "test_core_text.py:" in conflict


def test_the_same_tilings_one_after_the_other_do_not_conflict():
    """Section 5.2.3: incrementality gives the first one priority."""
    lowered = check(
        chain, MESH, [BP, ap.ManualPartition({"w1": 1}, axis="B")], ARGS,
        collectives={"all_gather": 1},
        core="""
        func @main(%x: tensor<256x8xf32>, %w1: tensor<8x16xf32>, %w2: tensor<16x8xf32>) mesh {"B":4, "M":2} {
          %xt = loop "B" [#tile<0>] (%rB: range<4>) {
            %xs = slice 0 %x[%rB] : tensor<64x8xf32>
            yield %xs
          } : tensor<256x8xf32>
          %w1t = loop "B" [#tile<1>] (%rB: range<4>) {
            %w1s = slice 1 %w1[%rB] : tensor<8x4xf32>
            yield %w1s
          } : tensor<8x16xf32>
          %3 = loop "B" [#tile<0>] (%rB: range<4>) {
            %3.0 = slice 0 %xt[%rB] : tensor<64x8xf32>
            %3.y = dot_general(%3.0, %w1t) : tensor<64x16xf32>
            yield %3.y
          } : tensor<256x16xf32>
          %4 = loop "B" [#tile<0>] (%rB: range<4>) {
            %4.0 = slice 0 %3[%rB] : tensor<64x16xf32>
            %4.y = dot_general(%4.0, %w2) : tensor<64x8xf32>
            yield %4.y
          } : tensor<256x8xf32>
          return %4
        }
        """,
    )  # fmt: skip
    assert lowered.metadata.tactics[1].conflicts == ()


def test_atomic_is_a_loop_of_any():
    """Section 8: a tagged value kept whole."""

    def gram(x):
        return x @ ap.tag("transposed", x.T)

    whole = ap.ManualPartition({"transposed": ap.REPLICATED}, axis="M")
    check(
        gram, MESH, [whole], [jax.ShapeDtypeStruct((256, 256), "float32")],
        collectives={},
        core="""
        func @main(%x: tensor<256x256xf32>) mesh {"B":4, "M":2} {
          %1 = transpose(%x) {permutation=[1,0]} : tensor<256x256xf32>
          %2 = tag(%1) : tensor<256x256xf32>
          %2t = loop "M" [any] (%rM: range<2>) {
            yield %2
          } : tensor<256x256xf32>
          %3 = dot_general(%x, %2t) : tensor<256x256xf32>
          return %3
        }
        """,
    )  # fmt: skip


SQUARE = """
func.func @main(%x: tensor<16xf32> loc("x")) -> tensor<4x4xf32> {
  %0 = stablehlo.reshape %x : (tensor<16xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}
"""
TILE = ap.ManualPartition({"x": 0}, axis="A")
LINE = jax.ShapeDtypeStruct((16,), "float32")


def test_reshape_is_tiled_on_its_major_factor():
    """Section 8: 16 -> 4x4 over 4 devices is a loop."""
    check(
        SQUARE, ap.Mesh({"A": 4}), [TILE], [LINE],
        collectives={},
        core="""
        func @main(%x: tensor<16xf32>) mesh {"A":4} {
          %xt = loop "A" [#tile<0>] (%rA: range<4>) {
            %xs = slice 0 %x[%rA] : tensor<4xf32>
            yield %xs
          } : tensor<16xf32>
          %1 = loop "A" [#tile<0>] (%rA: range<4>) {
            %1.0 = slice 0 %xt[%rA] : tensor<4xf32>
            %1.y = reshape(%1.0) : tensor<1x4xf32>
            yield %1.y
          } : tensor<4x4xf32>
          return %1
        }
        """,
    )  # fmt: skip


def test_reshape_blocks_an_axis_that_does_not_divide_its_major_factor():
    """Section 8: 16 -> 4x4 over 8 devices is not a loop."""
    check(
        SQUARE, ap.Mesh({"A": 8}), [TILE], [LINE],
        collectives={"all_gather": 1},
        core="""
        func @main(%x: tensor<16xf32>) mesh {"A":8} {
          %xt = loop "A" [#tile<0>] (%rA: range<8>) {
            %xs = slice 0 %x[%rA] : tensor<2xf32>
            yield %xs
          } : tensor<16xf32>
          %1 = reshape(%xt) : tensor<4x4xf32>
          return %1
        }
        """,
    )  # fmt: skip
