"""Random gradients through loops in loops, beside layers that are written out, and what of them is kept.

    ScannedProgram(7)     scan of 3 over stacked weights: [product, scan of 2 from zeros over rows: [product, mask]];
                          product, tagged; the gradient of the mean of squares, keep = ("kept", "blocks")

A part takes y: [rows, wide] to the next one. A loop takes its weights from a stack, from outside, or carries them; it
starts from y, from zeros, or from a row made as wide as y outside; it may run from the end, read rows, stack rows,
carry what the turn before had, or next have what is made outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import autopart as ap

ROWS, WIDE = 4, 4
MOST_DEEP = 3
PARTS = ("product", "product", "gate", "mask", "bias", "norm", "branch", "checkpoint", "scan", "scan", "unrolled")
HOLDERS = ("branch", "checkpoint", "scan", "unrolled")
STEPS = ("gradient", "gradient", "of x too", "microbatches", "twice", "inside a loop")


class Part(NamedTuple):
    """What is done to y, with the parts inside of it. The rest says how a loop is written; see the module."""

    kind: str
    inside: tuple[Part, ...] = ()
    tagged: bool = False
    trips: int = 1
    weights: str = "stacked"
    start: str = "y"
    remembers: str = "nothing"
    reads_rows: bool = False
    stacks_rows: bool = False
    from_the_end: bool = False

    def parameters(self, leading: tuple[int, ...] = ()) -> Any:
        """The weights as shapes, with leading dims for the loops around."""
        shape = {"product": (WIDE, WIDE), "gate": (WIDE, WIDE), "bias": (WIDE,), "mask": (WIDE,)}.get(self.kind)
        if shape is not None:
            return jax.ShapeDtypeStruct((*leading, *shape), "float32")
        if self.kind == "unrolled":
            return [[part.parameters(leading) for part in self.inside] for _ in range(self.trips)]
        inner = (*leading, self.trips) if self.kind == "scan" and self.weights == "stacked" else leading
        own = [jax.ShapeDtypeStruct((*leading, WIDE), "float32")] if self.kind == "scan" else []
        return [*own, [part.parameters(inner) for part in self.inside]]

    def __call__(self, w: Any, y: jax.Array) -> jax.Array:
        """The next y."""
        with jax.named_scope(self.kind):
            return getattr(self, f"_{self.kind}")(w, y)

    def _product(self, w: jax.Array, y: jax.Array) -> jax.Array:
        made = jnp.tanh(y @ w)
        return y + (ap.tag("kept", made) if self.tagged else made)

    def _gate(self, w: jax.Array, y: jax.Array) -> jax.Array:
        return y * jax.nn.sigmoid(y @ w)

    def _mask(self, w: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.where(jnp.broadcast_to(w > 0, y.shape), jnp.sin(y), 0.5 * y)

    def _bias(self, w: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.tanh(y + jnp.broadcast_to(w, y.shape))

    def _norm(self, w: Any, y: jax.Array) -> jax.Array:
        return y / jnp.sqrt(jnp.mean(y**2, axis=-1, keepdims=True) + 0.1)

    def _branch(self, w: Any, y: jax.Array) -> jax.Array:
        return lax.cond(jnp.sum(y) > 0, lambda y: in_turn(self.inside, w[0], y), lambda y: 0.5 * y, y)

    def _checkpoint(self, w: Any, y: jax.Array) -> jax.Array:
        return jax.checkpoint(partial(in_turn, self.inside))(w[0], y)

    def _unrolled(self, w: Any, y: jax.Array) -> jax.Array:
        for one in w:
            y = in_turn(self.inside, one, y)
        return y

    def _scan(self, w: Any, y: jax.Array) -> jax.Array:
        row, weights = w
        wide = jnp.broadcast_to(row, y.shape)
        start = {"y": y, "zeros": jnp.zeros_like(y), "wide": wide}[self.start]
        rows = y * jnp.linspace(0.5, 1.0, self.trips)[:, None, None] if self.reads_rows else None
        stacked, carried = (weights if self.weights == name else None for name in ("stacked", "carried"))

        def turn(carry: Any, given: Any) -> Any:
            (h, before, changing), (own, read) = carry, given
            used = own if self.weights == "stacked" else changing if self.weights == "carried" else weights
            h_in = h if read is None else h + read
            made = in_turn(self.inside, used, h_in if before is None else h_in + jnp.sin(before))
            following = {"nothing": None, "before": h, "outside": wide, "row": read}[self.remembers]
            return (made, following, jax.tree.map(lambda v: 0.9 * v, changing)), made if self.stacks_rows else None

        first = (start, None if self.remembers == "nothing" else wide, carried)
        (last, _, _), made = lax.scan(turn, first, (stacked, rows), length=self.trips, reverse=self.from_the_end)
        return y + last + (jnp.mean(jnp.sin(made), axis=0) if self.stacks_rows else 0)


def in_turn(parts: Sequence[Part], w: Any, y: jax.Array) -> jax.Array:
    """y after some parts, one after the other."""
    for part, own in zip(parts, w, strict=True):
        y = part(own, y)
    return y


class ScannedProgram:
    """A step drawn from a seed. `keep` is what `ap.Recompute` is told, `step(w, x)` the function; see the module."""

    def __init__(self, seed: int):
        self._rng = np.random.default_rng(seed)
        self.parts = self._drawn(MOST_DEEP)
        while not any(part.kind == "scan" for part in _all(self.parts)):
            self.parts = self._drawn(MOST_DEEP)
        self.kind = str(self._rng.choice(STEPS))
        self.keep = self._policy()
        self.seed = seed

    def __repr__(self) -> str:
        return f"ScannedProgram({self.seed}): {self.kind} of {_text(self.parts)}, keep={self.keep}"

    def _drawn(self, deep: int) -> tuple[Part, ...]:
        rng = self._rng
        count = int(rng.integers(1, 4))
        kinds = PARTS if deep else tuple(kind for kind in PARTS if kind not in HOLDERS)
        return tuple(self._part(str(kind), deep - 1) for kind in rng.choice(kinds, count))

    def _part(self, kind: str, deep: int) -> Part:
        rng = self._rng
        if kind not in HOLDERS:
            return Part(kind, tagged=bool(rng.integers(3) == 0))
        if kind != "scan":
            return Part(kind, self._drawn(deep), trips=int(rng.integers(1, 3)))
        reads_rows = bool(rng.integers(2))
        remembers = ["nothing", "nothing", "before", "outside", *(["row"] if reads_rows else [])]
        return Part(
            kind,
            self._drawn(deep),
            trips=int(rng.integers(1, 4)),
            weights=str(rng.choice(["stacked", "stacked", "closed over", "carried"])),
            start=str(rng.choice(["y", "y", "zeros", "wide"])),
            remembers=str(rng.choice(remembers)),
            reads_rows=reads_rows,
            stacks_rows=bool(rng.integers(2)),
            from_the_end=bool(rng.integers(4) == 0),
        )

    def _policy(self) -> tuple[Any, ...]:
        names = sorted({part.kind for part in _all(self.parts)} - {"checkpoint"})
        tags = ["kept"] if any(part.kind == "product" and part.tagged for part in _all(self.parts)) else []
        one = ["blocks", "blocks", "matmuls", "nothing", *tags, str(self._rng.choice(names))]
        count = int(self._rng.integers(1, 3))
        return tuple(dict.fromkeys(str(policy) for policy in self._rng.choice(one, count)))

    def loss(self, w: Any, x: jax.Array) -> jax.Array:
        """What the gradients are of."""
        return jnp.mean(in_turn(self.parts, w, x) ** 2)

    def step(self, w: Any, x: jax.Array) -> Any:
        """The gradients, or weights after steps."""
        slope = jax.grad(self.loss)
        if self.kind == "of x too":
            return jax.value_and_grad(self.loss, (0, 1))(w, x)
        if self.kind == "twice":
            w = jax.tree.map(lambda v, g: v - 0.1 * g, w, slope(w, x))
        if self.kind in ("microbatches", "inside a loop"):

            def turn(total: Any, x: jax.Array) -> Any:
                at = w if self.kind == "microbatches" else total
                return jax.tree.map(lambda t, g: t - 0.1 * g, total, slope(at, x)), None

            start = jax.tree.map(jnp.zeros_like, w) if self.kind == "microbatches" else w
            return lax.scan(turn, start, jnp.stack([x, 0.5 * x]))[0]
        return slope(w, x)

    @property
    def losses(self) -> int:
        """How often a step computes the loss."""
        return 2 if self.kind in ("twice", "microbatches", "inside a loop") else 1

    def inputs(self) -> tuple[Any, np.ndarray]:
        """(w, x): numbers for a step."""
        rng = np.random.default_rng(self.seed)
        shapes = [part.parameters() for part in self.parts]
        w = jax.tree.map(lambda s: rng.normal(size=s.shape).astype(np.float32) / 2, shapes)
        return w, rng.normal(size=(ROWS, WIDE)).astype(np.float32)


def _all(parts: Sequence[Part]) -> Iterator[Part]:
    for part in parts:
        yield part
        yield from _all(part.inside)


def _text(parts: Sequence[Part]) -> str:
    said: list[str] = []
    for part in parts:
        set_ = [f"{k}={v}" for k, v in part._asdict().items() if k != "inside" and v != Part._field_defaults.get(k)]
        inside = [_text(part.inside)] if part.inside else []
        said.append(f"{part.kind}({', '.join(set_[1:] + inside)})")
    return f"[{', '.join(said)}]"
