"""Is the gradient of a kernel two kernels, sliced as it is, and equal to the whole?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.pallas.ops.tpu.megablox import ops as megablox

import autopart as ap
from tests.kernels.programs import MESH, arrays, close, kernels, plain_attention, plain_norm, rms_norm


@jax.custom_vjp
def attention(q, k, v):
    return forward(q, k, v)[0]


def forward(q, k, v):
    """Keeps weights, and batch and heads in one dim."""
    scores = jnp.einsum("bhsd,bhtd->bhst", q, k)
    weights = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e30), -1)
    return jnp.einsum("bhst,bhtd->bhsd", weights, v), (q, k, v, weights.reshape(-1, *weights.shape[2:]))


def backward(kept, do):
    q, k, v, weights = kept
    weights = weights.reshape(*q.shape[:2], *weights.shape[1:])
    dw = jnp.einsum("bhsd,bhtd->bhst", do, v)
    ds = weights * (dw - (dw * weights).sum(-1, keepdims=True))
    return (
        jnp.einsum("bhst,bhtd->bhsd", ds, k),
        jnp.einsum("bhst,bhsd->bhtd", ds, q),
        jnp.einsum("bhst,bhsd->bhtd", weights, do),
    )


attention.defvjp(forward, backward)


def gradient_of(function, count=3):
    return jax.grad(lambda *x: (function(*x) ** 2).sum(), argnums=tuple(range(count)))


def test_what_is_kept_is_sliced_as_a_slice_of_the_kernel_keeps_it():
    attend = ap.kernel(attention, like=plain_attention)
    qkv = arrays(*[(4, 4, 8, 16)] * 3)
    schedule = [ap.ManualPartition({"x/0": 0}, axis="d"), ap.ManualPartition({"x/0": 1}, axis="m")]
    step = ap.jit(gradient_of(attend), ap.Mesh(MESH), schedule)
    low = step.lower(*qkv)
    assert not low.program.collectives()
    found = kernels(low)
    assert found["attention"]["rule"].endswith("-> f0 f1 _ _, f0 f1 _ _; tile f0=4 f1=4; reduce -")
    assert found["attention backward"]["rule"].endswith("reduce f0:sum=4 f1:sum=4")
    close(step(*qkv), gradient_of(plain_attention)(*qkv))


def test_the_gradient_of_an_operand_without_the_dim_is_a_sum():
    @jax.custom_vjp
    def scaled(x, w):
        return x * w

    scaled.defvjp(lambda x, w: (x * w, (x, w)), lambda kept, g: (g * kept[1], (g * kept[0]).sum(0)))
    kernel = ap.kernel(scaled, rule="b d, d -> b d; tile b d")
    x, w = arrays((8, 16), (16,))
    step = ap.jit(gradient_of(kernel, 2), ap.Mesh(MESH), [ap.ManualPartition({"x/0": 0}, axis="d")])
    assert step.lower(x, w).program.collectives() == {"all_reduce": 1}
    close(step(x, w), gradient_of(lambda x, w: x * w, 2)(x, w))


def test_a_maximum_of_slices_has_no_gradient_of_slices():
    largest = jax.custom_vjp(lambda x: x.max(0))
    largest.defvjp(lambda x: (x.max(0), x), lambda x, g: ((x == x.max(0)) * g,))
    kernel = ap.kernel(largest, rule="a b -> b; tile b; reduce a:max")
    (x,) = arrays((8, 16))
    schedule = [ap.ManualPartition({"x": 0}, axis="d"), ap.ManualPartition({"x": 1}, axis="m")]
    step = ap.jit(jax.grad(lambda x: (kernel(x) ** 2).sum()), ap.Mesh(MESH), schedule)
    close(step(x), jax.grad(lambda x: (x.max(0) ** 2).sum())(x))


def test_a_result_of_other_operands_is_computed_by_every_device():
    def twin(x, w):
        return jnp.tanh(x @ w), (x**2).sum(-1)

    kernel = ap.kernel(twin, like=twin, gradient="twin")
    x, w = arrays((8, 16), (16, 32))
    schedule = [ap.ManualPartition({"x": 0}, axis="d"), ap.ManualPartition({"w": 1}, axis="m")]
    step = ap.jit(lambda x, w: kernel(x, w), ap.Mesh(MESH), schedule)
    assert not step.lower(x, w).program.collectives()
    assert kernels(step.lower(x, w))["twin"]["rule"].endswith(":any=32")
    close(step(x, w), twin(x, w))


def test_the_twin_has_a_gradient_where_the_kernel_has_none():
    x, w = arrays((8, 6, 16), (16,))
    norm = ap.kernel(rms_norm, like=plain_norm, gradient="twin")
    step = ap.jit(gradient_of(norm, 2), ap.Mesh(MESH), [ap.ManualPartition({"x/0": 0}, axis="d")])
    close(step(x, w), gradient_of(plain_norm, 2)(x, w))
    with pytest.raises(ap.ProgramError, match=r"the kernel rms_norm has no gradient of its own"):
        gradient_of(ap.kernel(rms_norm, like=plain_norm), 2)(x, w)


def test_a_kernel_is_mapped_over_a_dim_forward_and_backward():
    attend = ap.kernel(attention, like=plain_attention)
    qkv = arrays(*[(3, 2, 4, 8, 16)] * 3)
    mapped = gradient_of(jax.vmap(attend))
    step = ap.jit(
        mapped, ap.Mesh(MESH), [ap.ManualPartition({"x/0": 1}, axis="d"), ap.ManualPartition({"x/0": 2}, axis="m")]
    )
    assert not step.lower(*qkv).program.collectives()
    close(step(*qkv), gradient_of(jax.vmap(plain_attention))(*qkv))


def in_slice(sizes, start, length):
    """What rows from `start` on have of each group."""
    ends = jnp.cumsum(sizes)
    first, last = (jnp.clip(edges, start, start + length) for edges in (ends - sizes, ends))
    return last - first


def grouped(lhs, rhs, sizes, start):
    sizes = in_slice(sizes, start, lhs.shape[0])
    return megablox.gmm(lhs, rhs, sizes, jnp.float32, (8, 16, 16), interpret=True)


def plain_grouped(lhs, rhs, sizes, start):
    return jax.lax.ragged_dot(lhs, rhs, in_slice(sizes, start, lhs.shape[0]))


def test_a_mixture_of_experts_with_grouped_products_is_divided_by_tokens_and_features():
    product = ap.kernel(grouped, like=plain_grouped, rule="m k, g k n, g, @m -> m n; tile m n; reduce k", name="gmm")

    def loss(x, up, down, sizes, product=product):
        h = jnp.tanh(product(x, up, sizes, jnp.int32(0)))
        return (product(h, down, sizes, jnp.int32(0)) ** 2).mean()

    x, up, down = arrays((64, 32), (4, 32, 64), (4, 64, 32))
    sizes = jnp.array([10, 22, 0, 32], jnp.int32)
    gradient = jax.value_and_grad(loss, argnums=(0, 1, 2))
    schedule = [ap.ManualPartition({"x": 0}, axis="d"), ap.ManualPartition({"up": 2, "down": 1}, axis="m")]
    step = ap.jit(gradient, ap.Mesh(MESH, device="tpu_v5e"), schedule)
    low = step.lower(x, up, down, sizes)
    assert min(low.metadata.flop_divided.values()) > 0.99
    assert set(low.program.collectives()) == {"all_reduce"}
    plain = jax.value_and_grad(lambda *a: loss(*a, product=plain_grouped), argnums=(0, 1, 2))
    close(step(x, up, down, sizes), plain(x, up, down, sizes))
