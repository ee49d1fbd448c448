"""A drawn model in its framework: what makes its parameters, and what applies them.

    model = built(drawn)
    model.init(key)                     parameters, as the framework has them
    model.apply(params, batch, key)     outputs of the head

A stack has its blocks in a list, a tuple, a dictionary (whose names do not sort as their numbers), stacked arrays for a
scan, or a list and then a scan. `plain` is how somebody writes it with nothing but jax; the frameworks have classes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from tests.whole_models import native
from tests.whole_models.blocks import BLOCKS, Get, More
from tests.whole_models.drawn import Drawn

VOCABULARY = 24
CLASSES = 10
ODD_NAMES = ("b", "a10", "a9", "Z", "layer 2", "h.0", "h.10", "h.2", "_x", "10", "9", "é")


@dataclass(frozen=True)
class Model:
    """`init(key)` makes parameters; `apply(params, batch, key)` has what the head makes of a batch."""

    init: Callable[[jax.Array], Any]
    apply: Callable[[Any, dict, jax.Array], jax.Array]


def parameter_type(drawn: Drawn) -> Any:
    return jnp.dtype({"bfloat16": "bfloat16", "float64": "float64"}.get(drawn.dtype, "float32"))


def initial(key: jax.Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> jax.Array:
    """Vectors near one, others so that products keep their size."""
    near = 1.0 if len(shape) == 1 else 0.0
    return near + jax.random.normal(key, shape, dtype) * (0.5 / max(math.prod(shape[:-1]), 1) ** 0.5)


def stem(drawn: Drawn, get: Get, x: jax.Array) -> jax.Array:
    """[batch, length, width] of what comes in."""
    d = drawn.width
    if drawn.inputs == "tokens":
        y = get("embed", (VOCABULARY, d))[x]
    elif drawn.inputs == "images":
        y = lax.conv_general_dilated(
            x, get("patch", (2, 2, 3, d)), (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        ).reshape(x.shape[0], -1, d)
    else:
        y = x @ get("enter", (d, d))
    return y if drawn.dtype != "mixed" else y.astype(jnp.bfloat16)


def head(drawn: Drawn, get: Get, x: jax.Array) -> jax.Array:
    """[batch, classes] or [batch, length, classes]; of a bare one [batch, length, width], and no parameter."""
    x = x.astype(parameter_type(drawn))
    if drawn.head == "bare":
        return jnp.tanh(x)
    if drawn.head == "tied" and drawn.inputs == "tokens":
        return x @ get("embed", (VOCABULARY, drawn.width)).T
    if drawn.head in ("first", "last") and drawn.zero != "length":
        x = x[:, 0] if drawn.head == "first" else x[:, -1]
    elif drawn.head == "mean":
        x = x.mean(1)
    return x @ get("leave", (drawn.width, CLASSES)) + get("leave_b", (CLASSES,))


def names(drawn: Drawn) -> list[str]:
    """A name for each block."""
    count = drawn.depth * len(drawn.blocks)
    if drawn.stack == "odd":
        return [ODD_NAMES[i % len(ODD_NAMES)] + "'" * (i // len(ODD_NAMES)) for i in range(count)]
    return [f"block_{i}" for i in range(count)]


def kinds(drawn: Drawn) -> list[str]:
    return list(drawn.blocks) * drawn.depth


def scanned(drawn: Drawn) -> int:
    """Blocks, from the end, that are one scan: only blocks of one kind can be."""
    if len(drawn.blocks) > 1 or drawn.depth < 2:
        return 0
    return {"scan": drawn.depth, "mixed": drawn.depth // 2}.get(drawn.stack, 0)


def more_of(drawn: Drawn, batch: dict, key: jax.Array) -> More:
    return More(key, batch["edges"], jnp.zeros((drawn.heads,)))


def _cast(drawn: Drawn, get: Get) -> Get:
    """Parameters of blocks in bf16 where the dtype is mixed."""
    if drawn.dtype != "mixed":
        return get
    return lambda name, shape: get(name, shape).astype(jnp.bfloat16)


def built(drawn: Drawn) -> Model:
    """The model in its framework."""
    return {"plain": _plain, "linen": _linen, "nnx": _nnx, "equinox": _equinox, "haiku": _haiku}[drawn.framework](drawn)


def example_batch(drawn: Drawn) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes of a batch; the edges of its graph are among its places."""
    b, t, d = drawn.dims
    real = parameter_type(drawn)
    x = {
        "tokens": jax.ShapeDtypeStruct((b, t), jnp.int32),
        "vectors": jax.ShapeDtypeStruct((b, t, d), real),
        "images": jax.ShapeDtypeStruct((b, 2, 2 * t, 3), real),
    }[drawn.inputs]
    wide = drawn.head == "all" or (drawn.head == "tied") or (drawn.head in ("first", "last") and drawn.zero == "length")
    y = jax.ShapeDtypeStruct((b, t) if wide else (b,), jnp.int32)
    return {"x": x, "y": y, "edges": jax.ShapeDtypeStruct((4 * b // drawn.accumulate, 2), jnp.int32)}


def _remat(drawn: Drawn, f: Callable) -> Callable:
    return jax.checkpoint(f) if drawn.remat else f


# ---- nothing but jax


def _shapes(drawn: Drawn, made: Callable[[Get], Any]) -> dict[str, tuple[int, ...]]:
    """The parameters that are asked for, by running the model for its shapes."""
    asked: dict[str, tuple[int, ...]] = {}

    def get(name: str, shape: tuple[int, ...]) -> jax.Array:
        asked[name] = shape
        return jnp.zeros(shape, parameter_type(drawn))

    jax.eval_shape(lambda: made(get))
    return asked


def _filled(drawn: Drawn, shapes: dict[str, tuple[int, ...]], key: jax.Array) -> dict[str, jax.Array]:
    keys = jax.random.split(key, max(len(shapes), 1))
    return {n: initial(k, s, parameter_type(drawn)) for k, (n, s) in zip(keys, shapes.items(), strict=False)}


def _block_input(drawn: Drawn) -> tuple[jax.Array, More]:
    b, t, d = drawn.dims
    dtype = jnp.bfloat16 if drawn.dtype == "mixed" else parameter_type(drawn)
    x = jnp.zeros((b // drawn.accumulate, t, d), dtype)
    return x, More(jax.random.key(0), jnp.zeros((4, 2), jnp.int32), jnp.zeros((drawn.heads,)))


def _block_shapes(drawn: Drawn, kind: str) -> dict[str, tuple[int, ...]]:
    return _shapes(drawn, lambda get: BLOCKS[kind](_cast(drawn, get), *_block_input(drawn)))


def _getter(params: dict[str, jax.Array]) -> Get:
    return lambda name, shape: params[name]


def _ends_shapes(drawn: Drawn) -> dict[str, tuple[int, ...]]:
    x = example_batch(drawn)["x"]
    return _shapes(drawn, lambda get: head(drawn, get, stem(drawn, get, jnp.zeros(x.shape, x.dtype))))


def _plain(drawn: Drawn) -> Model:
    listed = len(kinds(drawn)) - scanned(drawn)

    def init(key: jax.Array) -> dict[str, Any]:
        layers = [
            _filled(drawn, _block_shapes(drawn, kind), jax.random.fold_in(key, i))
            for i, kind in enumerate(kinds(drawn))
        ]
        one_by_one: Any = layers[:listed]
        if drawn.stack == "tuple":
            one_by_one = tuple(one_by_one)
        if drawn.stack in ("dict", "odd"):
            one_by_one = dict(zip(names(drawn), one_by_one, strict=False))
        params = {drawn.ends: _filled(drawn, _ends_shapes(drawn), jax.random.fold_in(key, 99)), "blocks": one_by_one}
        if scanned(drawn):
            params["stack"] = jax.tree.map(lambda *w: jnp.stack(w), *layers[listed:])
        return params

    def apply(params: dict[str, Any], batch: dict, key: jax.Array) -> jax.Array:
        more, ends = more_of(drawn, batch, key), _getter(params[drawn.ends])
        x = stem(drawn, ends, batch["x"])
        blocks = params["blocks"]
        layers = [blocks[n] for n in names(drawn)[:listed]] if isinstance(blocks, dict) else list(blocks)
        for kind, layer in zip(kinds(drawn), layers, strict=False):
            x = _remat(drawn, functools.partial(_block_of_plain, drawn, kind))(layer, x, more)
        if scanned(drawn):
            one = _remat(drawn, functools.partial(_block_of_plain, drawn, drawn.blocks[0]))
            x, _ = lax.scan(lambda x, layer: (one(layer, x, more), None), x, params["stack"], length=scanned(drawn))
        return head(drawn, ends, x)

    return Model(init, apply)


def _block_of_plain(drawn: Drawn, kind: str, layer: dict, x: jax.Array, more: More) -> jax.Array:
    return BLOCKS[kind](_cast(drawn, _getter(layer)), x, more).astype(x.dtype)


# ---- flax.linen


class LinenBlock(nn.Module):
    """A block whose parameters are the module's, or one of linen's own layers."""

    drawn: Drawn
    kind: str

    @nn.compact
    def __call__(self, x: jax.Array, more: More) -> jax.Array:
        if self.drawn.native:
            return native.linen(self.drawn, self.kind, x, more).astype(x.dtype)
        get = functools.partial(_linen_get, self)
        return BLOCKS[self.kind](_cast(self.drawn, get), x, more).astype(x.dtype)


def _linen_get(module: nn.Module, name: str, shape: tuple[int, ...]) -> jax.Array:
    return module.param(name, initial, shape, parameter_type(module.drawn))


class LinenScanned(nn.Module):
    """A block as a scan's body."""

    drawn: Drawn
    kind: str

    @nn.compact
    def __call__(self, x: jax.Array, more: More) -> tuple[jax.Array, None]:
        return LinenBlock(self.drawn, self.kind, name="body")(x, more), None


class LinenModel(nn.Module):
    """Stem, blocks by name, head."""

    drawn: Drawn

    @nn.compact
    def __call__(self, batch: dict, key: jax.Array) -> jax.Array:
        drawn, known = self.drawn, {}

        def get(name: str, shape: tuple[int, ...]) -> jax.Array:
            if name not in known:
                known[name] = _linen_get(self, f"{drawn.ends}_{name}", shape)
            return known[name]

        more = more_of(drawn, batch, key)
        x = stem(drawn, get, batch["x"])
        listed = len(kinds(drawn)) - scanned(drawn)
        made = nn.remat(LinenBlock) if drawn.remat else LinenBlock
        for name, kind in [*zip(names(drawn), kinds(drawn), strict=True)][:listed]:
            x = made(drawn, kind, name=name)(x, more)
        if scanned(drawn):
            stack = nn.scan(
                LinenScanned,
                variable_axes={"params": 0},
                split_rngs={"params": True},
                in_axes=nn.broadcast,
                length=scanned(drawn),
            )
            x, _ = stack(drawn, drawn.blocks[0], name="stack")(x, more)
        return head(drawn, get, x)


def _zeros(drawn: Drawn) -> dict[str, jax.Array]:
    return {n: jnp.zeros(s.shape, s.dtype) for n, s in example_batch(drawn).items()}


def _linen(drawn: Drawn) -> Model:
    module = LinenModel(drawn)
    return Model(
        lambda key: module.init(key, _zeros(drawn), key)["params"],
        lambda params, batch, key: module.apply({"params": params}, batch, key),
    )


# ---- flax.nnx


class NnxBlock(nnx.Module):
    """Parameters as attributes; or nnx's own layers."""

    def __init__(self, drawn: Drawn, kind: str, rngs: nnx.Rngs):
        self.kind, self.drawn = kind, drawn
        if drawn.native:
            self.layers = native.nnx_layers(drawn, kind, rngs)
            return
        for name, w in _filled(drawn, _block_shapes(drawn, kind), rngs.params()).items():
            setattr(self, f"w_{name}", nnx.Param(w))

    def __call__(self, x: jax.Array, more: More) -> jax.Array:
        if self.drawn.native:
            return native.nnx_block(self.drawn, self.kind, self.layers, x, more).astype(x.dtype)
        get = _cast(self.drawn, lambda name, shape: getattr(self, f"w_{name}")[...])
        return BLOCKS[self.kind](get, x, more).astype(x.dtype)


class NnxModel(nnx.Module):
    """Blocks in a list or a dictionary."""

    def __init__(self, drawn: Drawn, rngs: nnx.Rngs):
        self.drawn = drawn
        ends = _filled(drawn, _ends_shapes(drawn), rngs.params())
        setattr(self, drawn.ends, nnx.Dict({n: nnx.Param(w) for n, w in ends.items()}))
        blocks = [NnxBlock(drawn, kind, rngs) for kind in kinds(drawn)]
        by_name = drawn.stack in ("dict", "odd")
        self.blocks = nnx.Dict(dict(zip(names(drawn), blocks, strict=True))) if by_name else nnx.List(blocks)

    def __call__(self, batch: dict, key: jax.Array) -> jax.Array:
        drawn = self.drawn
        get = _getter({n: p[...] for n, p in getattr(self, drawn.ends).items()})
        x, more = stem(drawn, get, batch["x"]), more_of(drawn, batch, key)
        for place, name in enumerate(names(drawn)):
            block = self.blocks[name] if isinstance(self.blocks, nnx.Dict) else self.blocks[place]
            x = nnx.remat(lambda b, x: b(x, more))(block, x) if drawn.remat else block(x, more)
        return head(drawn, get, x)


def _nnx(drawn: Drawn) -> Model:
    """The functional form: a graph, its parameters, and what else it holds, which stays as it began (keys, counts)."""
    graph, _, others = nnx.split(nnx.eval_shape(lambda: NnxModel(drawn, nnx.Rngs(0))), nnx.Param, ...)

    def init(key: jax.Array) -> Any:
        return nnx.state(NnxModel(drawn, nnx.Rngs(key)), nnx.Param).to_pure_dict()

    def apply(params: Any, batch: dict, key: jax.Array) -> jax.Array:
        model = nnx.merge(graph, nnx.State(_wrapped(params)), jax.tree.map(_begun, others))
        return model(batch, key)

    return Model(init, apply)


def _begun(leaf: jax.ShapeDtypeStruct) -> jax.Array:
    keys = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key(0) if keys else jnp.zeros(leaf.shape, leaf.dtype)


def _wrapped(params: Any) -> Any:
    if isinstance(params, dict):
        return {key: _wrapped(value) for key, value in params.items()}
    return nnx.Param(params)


# ---- equinox


class EquinoxBlock(eqx.Module):
    """Parameters in a dictionary, as fields; or equinox's own layers."""

    params: Any
    kind: str = eqx.field(static=True)
    drawn: Drawn = eqx.field(static=True)

    def __init__(self, drawn: Drawn, kind: str, key: jax.Array):
        self.kind, self.drawn = kind, drawn
        self.params = (
            native.equinox_layers(drawn, kind, key) if drawn.native else _filled(drawn, _block_shapes(drawn, kind), key)
        )

    def __call__(self, x: jax.Array, more: More) -> jax.Array:
        if self.drawn.native:
            return native.equinox_block(self.drawn, self.kind, self.params, x, more).astype(x.dtype)
        return BLOCKS[self.kind](_cast(self.drawn, _getter(self.params)), x, more).astype(x.dtype)


class EquinoxModel(eqx.Module):
    """Blocks in a list, tuple or dictionary, and a stack of them for a scan."""

    ends: dict
    blocks: Any
    stack: Any
    drawn: Drawn = eqx.field(static=True)

    def __init__(self, drawn: Drawn, key: jax.Array):
        self.drawn = drawn
        self.ends = _filled(drawn, _ends_shapes(drawn), key)
        listed = len(kinds(drawn)) - scanned(drawn)
        keys = jax.random.split(key, len(kinds(drawn)))
        blocks: Any = [EquinoxBlock(drawn, k, keys[i]) for i, k in enumerate(kinds(drawn)[:listed])]
        if drawn.stack == "tuple":
            blocks = tuple(blocks)
        if drawn.stack in ("dict", "odd"):
            blocks = dict(zip(names(drawn), blocks, strict=False))
        self.blocks = blocks
        made = eqx.filter_vmap(lambda k: EquinoxBlock(drawn, drawn.blocks[0], k))
        self.stack = made(keys[listed:]) if scanned(drawn) else None

    def __call__(self, batch: dict, key: jax.Array) -> jax.Array:
        drawn, more = self.drawn, more_of(self.drawn, batch, key)
        x = stem(drawn, _getter(self.ends), batch["x"])
        blocks = [self.blocks[n] for n in names(drawn)] if isinstance(self.blocks, dict) else list(self.blocks)
        for block in blocks:
            x = eqx.filter_checkpoint(block)(x, more) if drawn.remat else block(x, more)
        if self.stack is not None:
            arrays, rest = eqx.partition(self.stack, eqx.is_array)
            x, _ = lax.scan(lambda x, a: (eqx.combine(a, rest)(x, more), None), x, arrays, length=scanned(drawn))
        return head(drawn, _getter(self.ends), x)


def _equinox(drawn: Drawn) -> Model:
    """Arrays are the parameters; what is no array stands beside them."""
    whole = eqx.filter_eval_shape(EquinoxModel, drawn, jax.random.key(0))
    rest = eqx.partition(whole, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))[1]
    return Model(
        lambda key: eqx.filter(EquinoxModel(drawn, key), eqx.is_array),
        lambda params, batch, key: eqx.combine(params, rest)(batch, key),
    )


# ---- haiku


def _haiku(drawn: Drawn) -> Model:
    def get(name: str, shape: tuple[int, ...]) -> jax.Array:
        return hk.get_parameter(name, shape, parameter_type(drawn), lambda s, t: initial(hk.next_rng_key(), s, t))

    def at_ends(name: str, shape: tuple[int, ...]) -> jax.Array:
        return get(f"{drawn.ends}_{name}", shape)

    def block(kind: str, x: jax.Array, more: More) -> jax.Array:
        if drawn.native:
            return native.haiku(drawn, kind, x, more).astype(x.dtype)
        return BLOCKS[kind](_cast(drawn, get), x, more).astype(x.dtype)

    def forward(batch: dict, key: jax.Array) -> jax.Array:
        more = more_of(drawn, batch, key)
        x = stem(drawn, at_ends, batch["x"])
        listed = len(kinds(drawn)) - scanned(drawn)
        for name, kind in [*zip(_haiku_names(drawn), kinds(drawn), strict=True)][:listed]:
            made = hk.to_module(functools.partial(block, kind))(name)
            x = hk.remat(made)(x, more) if drawn.remat else made(x, more)
        if scanned(drawn):
            one = hk.to_module(functools.partial(block, drawn.blocks[0]))
            x = hk.experimental.layer_stack(scanned(drawn))(lambda x: one("body")(x, more))(x)
        return head(drawn, at_ends, x)

    pure = hk.transform(forward)
    return Model(
        lambda key: pure.init(key, _zeros(drawn), key), lambda params, batch, key: pure.apply(params, key, batch, key)
    )


def _haiku_names(drawn: Drawn) -> Iterator[str]:
    """Haiku wants names of letters and digits."""
    return (f"block_{i}" if drawn.stack != "odd" else f"{'zyx'[i % 3]}{i}" for i in range(len(kinds(drawn))))
