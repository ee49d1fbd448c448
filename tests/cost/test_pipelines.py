"""Is the idle share of a pipeline, and what a stage holds, what closed forms say?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import autopart as ap
from tests.cost.programs import nodes_of
from tests.prompt import slow

LAYERS, WIDTH, ROWS, STAGES = 16, 1024, 2048, 4


def step(w, x):
    """Equal layers, and little else."""

    def loss(w):
        h = lax.scan(lambda h, w: (h + jnp.tanh(h @ w["up"]) @ w["down"], None), x, w)[0]
        return jnp.sum(h * h)

    return jax.tree.map(lambda a, g: a - 0.1 * g, w, jax.grad(loss)(w))


def estimate(microbatches, pipeline, device="h100"):
    w = {"up": (LAYERS, WIDTH, 4 * WIDTH), "down": (LAYERS, 4 * WIDTH, WIDTH)}
    shapes = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in w.items()}
    x = jax.ShapeDtypeStruct((ROWS * microbatches, WIDTH), jnp.float32)
    mesh = ap.Mesh({"pipe": STAGES}, device=device)
    tactics = [ap.Microbatch({"x": 0}, microbatches), *pipeline]
    return ap.jit(step, mesh, tactics, donate_argnums=0).lower(shapes, x).estimate


def worked_s(found):
    """Seconds of all kernels but those that fill stacks: a loop over layers begins its own in each microbatch, one over
    ticks once."""
    run = found.simulation
    fills = nodes_of(run, "broadcast_in_dim", "constant")
    return found.compute_s - sum(run.node_s[k] * run.node_trips[k] for k in fills)


@pytest.mark.parametrize(
    ("schedule", "microbatches", "repeats", "device"),
    [
        ("gpipe", 4, 1, "h100"),
        slow("gpipe", 16, 1, "h100"),
        ("1f1b", 8, 1, "h100"),
        slow("circular", 4, 2, "h100"),
        ("circular", 8, 4, "h100"),
        ("1f1b", 8, 1, "tpu_v5p"),
        slow("gpipe", 16, 1, "tpu_v5p"),
        slow("gpipe", 16, 1, "tpu_v3"),
    ],
)
def test_the_share_of_idle_ticks_is_that_of_the_closed_form(schedule, microbatches, repeats, device):
    pipeline = ap.Pipeline("pipe", schedule=schedule, repeats=repeats)
    whole, staged = estimate(microbatches, [], device), estimate(microbatches, [pipeline], device)
    idle = 1 - worked_s(whole) / STAGES / worked_s(staged)
    ticks = (STAGES - 1) / (repeats * microbatches + STAGES - 1)
    looks_up_runs = 0.08 if repeats > 1 else 0  # which run's weights a stage reads, and adds to, is known in each tick
    assert ticks - 0.05 < idle < ticks + 0.05 + looks_up_runs


def test_1f1b_holds_residuals_of_few_microbatches():
    peak = {s: [estimate(m, [ap.Pipeline("pipe", schedule=s)]).peak_bytes for m in (8, 32)] for s in ("gpipe", "1f1b")}
    rows = ROWS * WIDTH * 4
    assert peak["1f1b"][1] - peak["1f1b"][0] < 3 * 24 * rows  # the batch
    assert peak["gpipe"][1] - peak["gpipe"][0] > 24 * rows * LAYERS / STAGES
    assert peak["1f1b"][1] < peak["gpipe"][1] / 2
