"""Is PartIR:Core what a reader of the paper expects?"""

from __future__ import annotations

import textwrap

import jax

import autopart as ap

MESH = ap.Mesh({"B": 4, "M": 2})
ARGS = tuple(jax.ShapeDtypeStruct(s, "float32") for s in ((256, 8), (8, 16), (16, 8)))
BP = ap.ManualPartition({"x": 0}, axis="B")
MP = ap.ManualPartition({"w1": 1}, axis="M")
Z3 = ap.ManualPartition({"w1": 0, "w2": 1}, axis="B")


def chain(x, w1, w2):
    return (x @ w1) @ w2


def core(schedule, fun=chain, args=ARGS, mesh=MESH):
    return ap.jit(fun, mesh, schedule).lower(*args).as_text("core")


def check(text, expected):
    assert text == textwrap.dedent(expected).strip()


def test_matmul_chain_with_a_tiling_loop():
    """Listing 8, each op in its own loop."""
    check(
        core([BP]),
        """
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
    )


def test_inference_from_partial_match_slices_the_other_operand():
    """Section 5.2.2: tiling w1 alone slices w2 too, and the second matmul becomes a sum."""
    text = core([BP, MP])
    assert '%w2t = loop "M" [#tile<0>] (%rM: range<2>) {' in text
    assert (
        textwrap.dedent(text.split("%4 = ")[1].split("  return")[0]).strip()
        == textwrap.dedent(
            """\
        loop "B" [#tile<0>] (%rB: range<4>) {
            yield loop "M" [#sum] (%rM: range<2>) {
              %4.0 = slice 0 %3[%rB] : tensor<64x16xf32>
              %4.0' = slice 1 %4.0[%rM] : tensor<64x8xf32>
              %4.1 = slice 0 %w2t[%rM] : tensor<8x8xf32>
              %4.y = dot_general(%4.0', %4.1) : tensor<64x8xf32>
              yield %4.y
            }
          } : tensor<256x8xf32>"""
        ).strip()
    )


def test_deep_tiling_keeps_the_earlier_axis_outside():
    """Appendix B.1.2: tiling further never undoes."""
    assert """\
  %w1t = loop "M" [#tile<1>] (%rM: range<2>) {
    yield loop "B" [#tile<0>] (%rB: range<4>) {
      %w1s = slice 1 %w1[%rM] : tensor<8x8xf32>
      %w1s' = slice 0 %w1s[%rB] : tensor<2x8xf32>
      yield %w1s'
    }
  } : tensor<8x16xf32>""" in core([BP, MP, Z3])


def test_conflict_leaves_the_op_alone():
    """Section 5.2.3: two tilings in one tactic match two mappings; the matmul stays whole and is reported."""
    both = ap.ManualPartition({"x": 0, "w1": 1}, axis="B")
    low = ap.jit(chain, MESH, [both]).lower(*ARGS)
    assert "  %3 = dot_general(%xt, %w1t) : tensor<256x16xf32>" in low.as_text("core")
    (conflict,) = low.metadata.tactics[0].conflicts
    assert conflict.startswith('dot_general on "B": (0, -1) -> (0,) or (-1, 1) -> (1,)')
    assert "test_core_text.py:" in conflict


def test_the_same_tilings_one_after_the_other_do_not_conflict():
    """Section 5.2.3: incrementality gives the first one priority."""
    first, second = BP, ap.ManualPartition({"w1": 1}, axis="B")
    low = ap.jit(chain, MESH, [first, second]).lower(*ARGS)
    assert low.metadata.tactics[1].conflicts == ()
    assert "%3.y = dot_general(%3.0, %w1t) : tensor<64x16xf32>" in low.as_text("core")


def test_atomic_is_a_loop_of_any():
    """Section 8: a tagged value kept whole."""

    def gram(x):
        return x @ ap.tag("transposed", x.T)

    whole = ap.ManualPartition({"transposed": ap.REPLICATED}, axis="M")
    text = core([whole], gram, (jax.ShapeDtypeStruct((256, 256), "float32"),))
    assert (
        """\
  %2t = loop "M" [any] (%rM: range<2>) {
    yield %2
  } : tensor<256x256xf32>"""
        in text
    )


def test_reshape_is_tiled_on_its_major_factor_or_blocks():
    """Section 8: 16 -> 4x4 over 4 devices is a loop; over 8 it is not."""

    def square(x):
        return x.reshape(4, 4)

    tile, x = ap.ManualPartition({"x": 0}, axis="A"), (jax.ShapeDtypeStruct((16,), "float32"),)
    assert "%1.y = reshape(%1.0) : tensor<1x4xf32>" in core([tile], square, x, ap.Mesh({"A": 4}))
    assert "%1 = reshape(%xt) : tensor<4x4xf32>" in core([tile], square, x, ap.Mesh({"A": 8}))
