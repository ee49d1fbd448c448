"""Random number ops: which slices of the bits a device can draw without drawing the rest.

    rng_bit_generator state -> state, bits[i,j]      i  (_) -> any, tile 0      from a state further on

Philox computes four words from a key and a counter of 128 bits, one counter after the other in row-major order. A
slice that is one stretch of that order, a whole number of counters long, is what the op itself draws from a counter
further on: the same bits. So the first dim tiles, and the next one once the first is used up; of any other dim all is
drawn, and sliced. Threefry draws its words in pairs that lie half the array apart, and what DEFAULT means is the
platform's own affair (the pass `default_generators` says it where it is known): blocked.

jax's own keys draw by threefry in elementwise ops over an iota instead, which tile. (`jax_threefry_partitionable`, its
default.)
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from autopart.core.op import ANY, WHOLE, OpSpec, TensorType, TileMapping
from autopart.core.ops.rule import LocalOp, Value, blocked, rule
from autopart.core.ops.rules.example_text import op
from autopart.core.ops.traits import Opaque, elements

_WORD_OPS = {"THREE_FRY": 50, "PHILOX": 25, "DEFAULT": 25}
"""Vector operations per 32-bit word. Threefry draws two words by 20 rounds of an add, a rotation (3) and a xor; Philox,
which the default is taken for, draws four by 10 rounds of four products, four xors and two adds."""

_COUNTER_WORDS = 4


def _words(bits: TensorType) -> int:
    """32-bit words per element: a narrower one takes a word too."""
    return max(1, int(bits.element_bytes) // 4)


def _bits_flop(spec: OpSpec) -> float:
    bits = spec.results[1]
    return elements(bits) * _words(bits) * _WORD_OPS[str(spec.attributes["rng_algorithm"])]


def _counters(bits: TensorType) -> int:
    """The counters that an array takes."""
    return -(-math.prod(bits.shape) * _words(bits) // _COUNTER_WORDS)


def _further_on(local: LocalOp, state: Value, by: Value, length: int) -> Value:
    """A state, ui64[2 or 3], whose counter is `by` further on, a ui64[1], as ui64[length].

    A state of two has the key and the lower half of the counter; its upper half is the key again.
    """
    parts = local.type_of(state).shape[0]
    key, low = (local.slice(state, [i], [i + 1]) for i in (0, 1))
    high = local.slice(state, [2], [3]) if parts == 3 else key
    moved = local.binary("add", low, by)
    carried = local.convert(local.compare(moved, low, "LT"), "ui64")
    return local.concatenate([key, moved, local.binary("add", high, carried)][:length], 0)


def _localize_bits(local: LocalOp) -> list[Value]:
    """The slice, drawn from the counter at which it starts; the state afterwards is that of the whole."""
    [state], (state_type, bits), whole = local.operands, local.result_types, local.spec.results[1]
    if all(local.ways(m) == 1 for m in range(len(local.mappings))):
        return local.clone()
    start = local.constant(0, "ui64", (1,))
    for m, mapping in enumerate(local.mappings):
        dim = mapping.results[1]
        slice_ = TensorType((bits.shape[dim], *whole.shape[dim + 1 :]), bits.dtype)
        place = local.reshape(local.convert(local.position(m), "ui64"), (1,))
        counters = local.binary("multiply", place, local.constant(_counters(slice_), "ui64", (1,)))
        start = local.binary("add", start, counters)
    _, drawn = local.clone([_further_on(local, state, start, 3)], [TensorType((3,), "ui64"), bits])
    all_of_them = local.constant(_counters(whole), "ui64", (1,))
    return [_further_on(local, state, all_of_them, state_type.shape[0]), drawn]


def _generator(name: str) -> str:
    return f"rng_algorithm = #stablehlo<rng_algorithm {name}>"


@rule(
    "rng_bit_generator",
    traits=Opaque(flop=_bits_flop, flop_reason="the rounds of the generator; XLA counts one transcendental a number"),
    localize=_localize_bits,
    blocked_because="a slice of the bits cannot be drawn without drawing them all; use threefry keys, which tile",
    examples=(
        op("rng_bit_generator", "2xui64 -> 2xui64, 4x6xui32", _generator("PHILOX")),
        op("rng_bit_generator", "2xui64 -> 2xui64, 4x6xui32", _generator("THREE_FRY")),
        op("rng_bit_generator", "2xui64 -> 2xui64, 6x4xui32", _generator("PHILOX")),
        op("rng_bit_generator", "3xui64 -> 3xui64, 2x8xui64", _generator("PHILOX")),
        op("rng_bit_generator", "2xui64 -> 2xui64, 1x8x4xui8", _generator("PHILOX")),
    ),
)
def rng_bit_generator(spec: OpSpec) -> Iterable[TileMapping]:
    """The dims that one stretch of the bits is made of, by Philox: the first, then the next."""
    state, bits = spec.operands[0], spec.results[1]
    if spec.attributes["rng_algorithm"] != "PHILOX" or state not in (
        TensorType((2,), "ui64"),
        TensorType((3,), "ui64"),
    ):
        return
    before: TileMapping | None = None
    for dim, size in enumerate(bits.shape):
        row = math.prod(bits.shape[dim + 1 :]) * _words(bits)
        rows = _COUNTER_WORDS // math.gcd(_COUNTER_WORDS, row)
        if size % rows or not row:
            return
        if size > 1:
            before = TileMapping((WHOLE,), (ANY, dim), size // rows, after=before)
            yield before
        if rows > 1:
            return


blocked(
    "rng",
    traits=Opaque(flop=lambda spec: elements(spec.results[0]) * _WORD_OPS["DEFAULT"]),
    family="random_bits",
    reason="it draws from a hidden state, which devices do not share; use threefry keys, which tile",
    effect=True,
)
