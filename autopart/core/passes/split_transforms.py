"""The pass `split_transforms`: a Fourier transform of several dims becomes one of each.

    %y = fft %x over all of [64,64,64]   ->   fft over the last dim, transpose, fft, transpose, fft, transpose

So a tile of one dim is exchanged for another that is not transformed at the time, where all was gathered. The last dim
comes first; of an inverse it comes last, so what the transform has exchanged stays as it is between the two. Dims that
are done stand before those that are left: a tile is exchanged for the first.
"""

from __future__ import annotations

from dataclasses import dataclass

from autopart.core.doors.jax_internals import ir
from autopart.core.op import OpSpec, TensorType
from autopart.core.passes.pattern_rewriter import PatternPass, PatternRewriter
from autopart.core.passes.program_pass import APART, register_pass


@register_pass("split_transforms")
@dataclass(frozen=True)
class SplitTransforms(PatternPass):
    """Fourier transforms of several dims become one of each."""

    roots = ("fft",)

    def wanted(self, spec: OpSpec) -> bool:
        """See `PatternPass.wanted`."""
        return len(spec.attributes["fft_length"]) > 1

    def whole(self) -> None:
        """See `Pass.whole`: no transform is split."""

    def rewrite(self, at: PatternRewriter, op: int) -> int:
        """See `PatternPass.rewrite`."""
        spec, [value] = at.spec(op), at.operands(op)
        kind, lengths = spec.attributes["fft_type"], spec.attributes["fft_length"]
        rank = len(spec.results[0].shape)
        last, batch, order = rank - 1, list(range(rank - len(lengths))), list(range(rank))
        dims, done = list(range(len(batch), rank)), list[int]()
        for dim in dims if kind in ("IFFT", "IRFFT") else reversed(dims):
            left = [d for d in dims if d != dim and d not in done]
            value, order = _turned(at, value, order, [*batch, *done, *left, dim])
            done.append(dim)
            own = kind if dim == last else {"RFFT": "FFT", "IRFFT": "IFFT"}.get(kind, kind)
            made = at.type_of(value)
            if dim == last:
                made = TensorType((*made.shape[:-1], spec.results[0].shape[last]), spec.results[0].dtype)
            [value] = at.create(
                "stablehlo.fft",
                [value],
                [made],
                marks=((APART, True),),
                fft_type=ir.Attribute.parse(f"#stablehlo<fft_type {own}>"),
                fft_length=ir.DenseI64ArrayAttr.get([lengths[dim - rank]]),
            )
        return _turned(at, value, order, list(range(rank)))[0]


def _turned(at: PatternRewriter, value: int, order: list[int], wanted: list[int]) -> tuple[int, list[int]]:
    """A value whose dims stand in an order, with its dims in another one."""
    return (value if order == wanted else at.transpose(value, [order.index(d) for d in wanted])), wanted
