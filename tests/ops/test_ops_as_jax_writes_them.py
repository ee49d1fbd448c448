"""The rules on ops as jax lowers them: their attributes come in more forms than examples show."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from autopart.core.doors.jax_internals import ir, parse_module
from autopart.core.op import OpSpec
from autopart.core.op_spec_import import SpecTable
from autopart.core.ops.rule import Example, describe, rule_of
from tests.ops.oracle import subject_of
from tests.ops.test_mappings_are_true_and_complete import declared_by, prove
from tests.prompt import slow


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def i32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def conv(x, w, stride, padding, **more):
    return lax.conv_general_dilated(x, w, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"), **more)


def pooled(x, window, stride, reduce):
    start = -jnp.inf if reduce is lax.max else 0.0
    return lax.reduce_window(x, start, reduce, (1, window, window, 1), (1, stride, stride, 1), "VALID")


def attention(q, k, v):
    return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", q, k)), v)


def gradients(function: Callable, *operands: int) -> Callable:
    return jax.grad(lambda *args: (function(*args) ** 2).sum(), argnums=operands or (0,))


PROGRAMS: dict[str, tuple[Callable, tuple]] = {
    "attention": (attention, (f32(2, 4, 6),) * 3),
    "embedding": (lambda t, i: t[i], (f32(8, 4), i32(2, 6))),
    "embedding gradient": (lambda t, i: jax.grad(lambda t: (t[i] ** 2).sum())(t), (f32(8, 4), i32(2, 6))),
    "take along axis": (lambda x, i: jnp.take_along_axis(x, i, axis=1), (f32(4, 8), i32(4, 2))),
    "take along axis gradient": (
        lambda x, i: jax.grad(lambda x: jnp.take_along_axis(x, i, axis=1).sum())(x),
        (f32(4, 8), i32(4, 2)),
    ),
    "take columns": (lambda x, i: jnp.take(x, i, axis=1), (f32(4, 8), i32(6))),
    "rows of a batch": (jax.vmap(lambda x, i: x[i]), (f32(4, 8, 2), i32(4, 6))),
    "segment sum": (lambda x, s: jax.ops.segment_sum(x, s, 6), (f32(8, 4), i32(8))),
    "segment max": (lambda x, s: jax.ops.segment_max(x, s, 6), (f32(8, 4), i32(8))),
    "set rows": (lambda x, i, u: x.at[i].set(u), (f32(8, 4), i32(2), f32(2, 4))),
    "add to cells": (lambda x, i, j, u: x.at[i, j].add(u), (f32(8, 4), i32(6), i32(6), f32(6))),
    "multiply a window": (lambda x, i, u: lax.dynamic_update_slice(x, u, (i, 0)), (f32(8, 4), i32(), f32(3, 4))),
    "scan over layers": (lambda w, x: lax.scan(lambda x, w: (x @ w, x.sum(0)), x, w), (f32(4, 6, 6), f32(2, 6))),
    "patches": (lambda x, w: conv(x, w, 2, "VALID"), (f32(2, 8, 8, 4), f32(2, 2, 4, 6))),
    "patches gradient": (gradients(lambda x, w: conv(x, w, 2, "VALID"), 0, 1), (f32(2, 8, 8, 4), f32(2, 2, 4, 6))),
    "image convolution gradient": (
        gradients(lambda x, w: conv(x, w, 1, "SAME"), 0, 1),
        (f32(2, 4, 4, 4), f32(3, 3, 4, 6)),
    ),
    "pointwise convolution gradient": (
        gradients(lambda x, w: conv(x, w, 1, "SAME"), 0, 1),
        (f32(2, 4, 4, 4), f32(1, 1, 4, 6)),
    ),
    "grouped convolution gradient": (
        gradients(lambda x, w: conv(x, w, 1, "SAME", feature_group_count=4), 0, 1),
        (f32(2, 4, 4, 8), f32(3, 3, 2, 4)),
    ),
    "max pool gradient": (gradients(lambda x: pooled(x, 2, 2, lax.max)), (f32(2, 4, 4, 2),)),
    "overlapping max pool gradient": (gradients(lambda x: pooled(x, 3, 2, lax.max)), (f32(2, 5, 5, 2),)),
    "mean pool gradient": (gradients(lambda x: pooled(x, 2, 2, lax.add)), (f32(2, 4, 4, 2),)),
    "cumulative sum": (lambda x: jnp.cumsum(x, axis=1), (f32(4, 6),)),
    "cumulative log sum exp": (lambda x: lax.cumlogsumexp(x, axis=0), (f32(6, 4),)),
    "argmax": (lambda x: jnp.argmax(x, axis=1), (f32(4, 6),)),
    "sort and median": (lambda x: (jnp.argsort(x, axis=-1), jnp.median(x, axis=0)), (f32(4, 6),)),
    "top k": (lambda x: lax.top_k(x, 2), (f32(4, 6),)),
    "roll and flip": (lambda x: jnp.flip(jnp.roll(x, 1, axis=0), axis=1), (f32(4, 6),)),
    "every other": (gradients(lambda x: x[:, ::2]), (f32(4, 6),)),
    "spectrum": (lambda x: jnp.fft.irfft(jnp.fft.rfft(x)), (f32(4, 6),)),
    "any and all": (lambda x: (jnp.any(x > 0, axis=0), jnp.all(x > 0, axis=1)), (f32(4, 6),)),
    "product": (lambda x: jnp.prod(x, axis=0), (f32(4, 6),)),
    "random bits": (lambda x: x * jax.random.bernoulli(jax.random.key(0), 0.5, x.shape), (f32(4, 6),)),
    "attention heads": (lambda x: x.reshape(2, 4, 3, 6).transpose(0, 2, 1, 3).reshape(6, 24), (f32(2, 4, 18),)),
    "outer products": (lambda x, y: jnp.einsum("bi,bj->bij", x, y), (f32(4, 6), f32(4, 2))),
    "mixture of experts": (
        lambda x, w, r: jnp.einsum("tec,tm,emf->ecf", jax.nn.one_hot(r, 6), x, w),
        (f32(8, 4), f32(2, 4, 6), i32(8, 2)),
    ),
}


def ops_of(function: Callable, arguments: tuple) -> Iterator[Example]:
    """The distinct ops of a program, as examples; control flow is entered."""
    module = parse_module(jax.jit(function).lower(*arguments).as_text())
    table = SpecTable()
    for op in _walk(module.operation):
        known = len(table.specs)
        spec = table.specs[table.intern(op)]
        rule = rule_of(spec)
        assert rule is not None, f"no rule for {describe(spec)}"
        if len(table.specs) > known and rule.family not in ("elementwise", "constants"):
            yield Example(_generic(op), _feeds(spec), tolerance=1e-4)


def _feeds(spec: OpSpec) -> tuple:
    """A reduction starts from its identity, as StableHLO wants; anything else may be fed to anything."""
    if spec.kind not in ("reduce", "reduce_window"):
        return ()
    whole = spec.operands[0].dtype == "i1"
    identity = {"add": 0, "or": 0, "mul": 1, "and": 1 if whole else -1, "max": -9, "min": 9}.get(spec.region, 0)
    count = len(spec.results)
    starts = [(identity, identity + (not t.dtype.startswith("f"))) for t in spec.operands[count:]]
    return (*[None] * count, *starts)


def _walk(op: ir.Operation) -> Iterator[ir.Operation]:
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                inner = inner.operation
                if inner.name in ("func.func", "stablehlo.while", "stablehlo.case"):
                    yield from _walk(inner)
                elif inner.name.startswith(("stablehlo.", "chlo.")) and inner.name != "stablehlo.return":
                    yield inner


def _generic(op: ir.Operation) -> str:
    """The op in generic form, over operands %0, %1, ..."""
    text = op.get_asm(print_generic_op_form=True, assume_verified=True, use_local_scope=True)
    text = text.split(" = ", 1)[1] if not text.startswith('"') else text
    operands = ", ".join(f"%{i}" for i in range(len(op.operands)))
    return re.sub(r'^("[\w.]+")\([^)]*\)', rf"\1({operands})", text).strip()


@pytest.mark.parametrize("name", [slow(name) if name.endswith("gradient") else name for name in PROGRAMS])
def test_every_op_of_a_jax_program_computes_the_same_on_slices(name: str):
    found = list(ops_of(*PROGRAMS[name]))
    assert found
    for example in found:
        subject = subject_of(example)
        if declared_by(subject):
            prove(subject, declared_by(subject))
