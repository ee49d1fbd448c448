"""Does a bound's part of any state cost no more than the state: its kernels, its moves?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from autopart.core.layout import LAST_TILE
from autopart.core.op import TensorType
from autopart.core.table.actions import Atomic, Propagate, Tile
from autopart.core.table.partitioning import Partitioning
from autopart.costmodel.compiled.fusion.kernel_graph import KERNEL
from autopart.costmodel.compiled.simulator import Simulator
from autopart.costmodel.lower_for_device import lower_for_device
from autopart.search.contract import MESH, two_matrices
from autopart.search.evaluation.cost import StepSeconds
from autopart.search.ilp.bound import each_apart, lower_bound
from autopart.search.ilp.incumbent import choice_of
from autopart.search.ilp.labels import in_tiles, legal_labels, stretches_of
from autopart.search.ilp.lowered_moves import ExactJob, LeastJob, least_jobs
from autopart.search.ilp.prices import DEF, USE, WAIT, PriceJob
from autopart.search.ilp.shared_moves import share_moves
from experiments.ilp.small import SMALL, f32
from experiments.models import gns, t32
from tests.prompt import in_turn
from tests.property.random_programs import RandomProgram
from tests.search.test_ilp import WALKED, model_of, task_of

SUM = LAST_TILE + 1
DEVICES = ("tpu_v3", "tpu_v5e", "h100")


def layer(params, x):
    """A transformer layer with its update: normalisation, attention, a gelu, all backwards too."""

    def normal(x, gain):
        centred = x - x.mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gain

    def loss(p):
        q, k, v = (jnp.einsum("btd,dnh->btnh", normal(x, p["g"]), p[n]) for n in "qkv")
        weights = jax.nn.softmax(jnp.einsum("bqnh,bknh->bnqk", q, k))
        h = x + jnp.einsum("bqnh,nhd->bqd", jnp.einsum("bnqk,bknh->bqnh", weights, v), p["o"])
        return ((h + jax.nn.gelu(normal(h, p["g"]) @ p["up"]) @ p["down"]) ** 2).mean()

    return jax.tree.map(lambda p, g: p - 1e-3 * g / (jnp.sqrt(g * g) + 1e-8), params, jax.grad(loss)(params))


def mixed(params, x, labels):
    """Attention and a loss in bf16, their softmaxes in f32, backwards too; a table and labels that are looked up."""

    def loss(p):
        h = p["table"].astype(jnp.bfloat16)[x]
        q, k, v = (jnp.einsum("btd,dnh->btnh", h, p[n].astype(jnp.bfloat16)) for n in "qkv")
        scores = jnp.einsum("bqnh,bknh->bnqk", q, k).astype(jnp.float32) * 0.25
        weights = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9))
        made = jnp.einsum("bnqk,bknh->bqnh", weights.astype(jnp.bfloat16), v)
        h = h + jnp.einsum("bqnh,nhd->bqd", made, p["o"].astype(jnp.bfloat16))
        logits = (h @ p["table"].astype(jnp.bfloat16).T).astype(jnp.float32)
        return (jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, labels[..., None], -1)[..., 0]).mean()

    return jax.tree.map(lambda p, g: p - 1e-3 * g, params, jax.grad(loss)(params))


def chosen(x, w, labels):
    """Losses of two policies by log-softmaxes over rows of logits, of which one is trained."""

    def loss(w, x):
        picked = [jnp.take_along_axis(jax.nn.log_softmax(x @ v), labels[..., None], -1) for v in (w[0], w[1])]
        return (picked[0] - jax.lax.stop_gradient(picked[1])).mean()

    return jax.grad(loss, (0, 1))(w, x)


def scanned(x, weights):
    return jax.lax.scan(lambda h, w: (jax.nn.gelu(h @ w) + h, h.sum()), x, weights)


def windows(image, kernel, strided):
    """Stretches of rows: of windows, of windows two apart, of differences and of what is turned round."""
    dims = ("NHWC", "HWIO", "NHWC")
    made = jax.nn.silu(jax.lax.conv_general_dilated(image, kernel, (1, 1), "SAME", dimension_numbers=dims))
    made = jax.lax.conv_general_dilated(made, strided, (2, 2), "SAME", dimension_numbers=dims)
    return made, made[:, 1:] - made[:, :-1], jnp.roll(made, 1, axis=2) + made[:, ::-1]


def depthwise(image, kernel, wide):
    """A window for each feature, a mask, and what of it is small; as in a ConvNeXt."""
    dims = ("NHWC", "HWIO", "NHWC")
    made = jax.lax.conv_general_dilated(
        image, kernel, (1, 1), "SAME", dimension_numbers=dims, feature_group_count=image.shape[-1]
    )
    hidden = jax.nn.gelu(made @ wide)
    return hidden @ wide.T + image, made > 0, hidden.mean((1, 2)), made.astype(jnp.bfloat16)


def grouped(image, kernel, gain):
    """Features that are normalised by groups, before a convolution and once more turned round."""

    def normal(x):
        groups = x.reshape(*x.shape[:-1], 4, -1)
        centred = groups - groups.mean((1, 2, 4), keepdims=True)
        return (centred * jax.lax.rsqrt((centred**2).mean((1, 2, 4), keepdims=True) + 1e-5)).reshape(x.shape) * gain

    dims = ("NHWC", "HWIO", "NHWC")
    made = jax.lax.conv_general_dilated(jax.nn.silu(normal(image)), kernel, (1, 1), "SAME", dimension_numbers=dims)
    return normal(made) + image, normal(image + made).transpose(0, 3, 1, 2).sum(2)


def query(token, keys, values, new):
    """One token's attention over a cache, and the cache with one row more."""
    scores = jnp.einsum("bhd,bhtd->bht", token, keys)
    out = jnp.einsum("bht,bhtd->bhd", jax.nn.softmax(scores), values)
    return out, jax.lax.dynamic_update_slice(keys, new[:, :, None], (0, 0, 5, 0)), jnp.argmax(out.reshape(64, -1), -1)


LAYER = {name: f32(128, 8, 16) for name in "qkv"} | {"o": f32(8, 16, 128), "g": f32(128)}
LAYER |= {"up": f32(128, 512), "down": f32(512, 128)}

MIXED = {name: f32(128, 8, 16) for name in "qkv"} | {"o": f32(8, 16, 128), "table": f32(1024, 128)}
TOKENS = jax.ShapeDtypeStruct((16, 512), jnp.int32)

WINDOWED = (f32(8, 32, 32, 64), f32(3, 3, 64, 64), f32(3, 3, 64, 128))

PROGRAMS = {name: (small.fun, small.args) for name, small in SMALL.items()} | WALKED
PROGRAMS |= {
    "layer": (layer, (LAYER, f32(16, 64, 128))),
    "layer_bf16": (
        layer,
        jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, "bfloat16"), (LAYER, f32(16, 256, 128))),
    ),
    "mixed": (mixed, (MIXED, TOKENS, TOKENS)),
    "chosen": (chosen, (f32(16, 128, 256), f32(2, 256, 4096), jax.ShapeDtypeStruct((16, 128), jnp.int32))),
    "scanned": (scanned, (f32(512, 256), f32(4, 256, 256))),
    "windows": (windows, WINDOWED),
    "windows_backwards": (
        jax.grad(lambda kernels, image: sum((y**2).sum() for y in windows(image, *kernels))),
        (WINDOWED[1:], WINDOWED[0]),
    ),
    "residual": (
        lambda x, w, v: (lambda h: (h + jnp.tanh(h @ v), h.sum(-1), (h * 2).max(0)))(x + x @ w),
        (f32(2048, 512), f32(512, 512), f32(512, 512)),
    ),
    "depthwise": (depthwise, (f32(16, 32, 32, 128), f32(7, 7, 1, 128), f32(128, 512))),
    "depthwise_backwards": (
        jax.grad(lambda kernels, image: sum((y.astype(jnp.float32) ** 2).sum() for y in depthwise(image, *kernels))),
        ((f32(7, 7, 1, 128), f32(128, 512)), f32(16, 32, 32, 128)),
    ),
    "grouped": (grouped, (f32(8, 16, 16, 160), f32(3, 3, 160, 160), f32(160))),
    "grouped_backwards": (
        jax.grad(lambda weights, image: sum((y**2).sum() for y in grouped(image, *weights))),
        ((f32(3, 3, 160, 160), f32(160)), f32(8, 16, 16, 160)),
    ),
    "query": (query, (f32(64, 8, 64), f32(64, 8, 512, 64), f32(64, 8, 512, 64), f32(64, 8, 64))),
    "no_elements": (lambda x, w: jnp.tanh(x @ w) + w.sum(0), (f32(512, 0), f32(0, 256))),
}

DECODER = t32.Config(layers=2, model_dim=512, heads=8, vocabulary=1024, batch=16, sequence=128)
GRAPH = gns.Config(steps=2, mlp_layers=3, hidden=512, latent=256, nodes=512, edges=2048)
STEPS = {"decoder": (t32, DECODER), "graph": (gns, GRAPH)}


def began(fun, args, device: str, donated: tuple[int, ...] = ()) -> Partitioning:
    mesh = ap.Mesh({"a": 4, "b": 2}, device=device)
    return Partitioning(ap.jit(fun, mesh, [], donate_argnums=donated).lower(*args).traced.program, mesh)


def walk(state: Partitioning, random: np.random.Generator, length: int) -> None:
    """Tiles, propagations and atomics wherever they are legal."""
    for _ in range(length):
        value, axis = int(random.integers(state.program.value_count)), "ab"[random.integers(2)]
        rank = len(state.program.type_of(value).shape)
        if random.random() < 0.3 and state.tiled_dim(value, axis) < 0:
            state.apply(Atomic(value, axis))
        elif rank and not state.why_not_tile(value, dim := int(random.integers(rank)), axis):
            state.apply_all([Tile(value, dim, axis), Propagate(axis)])


def shares_of_states(start: Partitioning, states: int, seed: int = 0) -> np.ndarray:
    """float64[states, 2]: for random states, the least seconds of their ops' strategies over the seconds of their
    kernels, and the least cost of their own choice, moves and all, over the seconds of their step."""
    task = task_of(start)
    model, simulator = model_of(task), Simulator.of(start.program, start.mesh)
    share_moves(model, 20.0)
    once, trips, random = model.least_once, model.trips(), np.random.default_rng(seed)
    found: list[tuple[float, float]] = []
    for _ in range(states):
        state = start.copy()
        walk(state, random, int(random.integers(0, 10)))
        run = simulator.run(lower_for_device(state))
        kernels = run.graph.nodes["kind"] == KERNEL
        choice = choice_of(model.nodes, run.local)
        ops = sum(n * costs[c] for n, costs, c in zip(trips, once, choice, strict=True))
        taken = model.flow.taken_least(choice.tolist())
        jobs = least_jobs(move for move in taken if move not in model.table.planned)
        model.table.learn_least(jobs, [job.answer(task) for job in jobs])
        moves = sum(m[choice[u], choice[v]] for (u, v), m in model.flow.edges(model.table, least=True).items())
        kernels_s = float((run.node_s * run.node_trips)[kernels].sum())
        found.append((ops / max(1e-30, kernels_s), (ops + moves) / max(1e-30, run.serial_s)))
    return np.array(found)


# ---- ops

PROMPT = (
    "attention",
    "messages",
    "normalise",
    "layer",
    "layer_bf16",
    "mixed",
    "scanned",
    "chosen",
    "residual",
    "windows",
    "depthwise",
    "grouped",
    "grouped_backwards",
    "query",
    "no_elements",
)


@pytest.mark.parametrize(("name", "device"), in_turn(PROMPT, DEVICES))
def test_choice_that_is_a_random_state_costs_no_more_than_the_state(name, device):
    assert shares_of_states(began(*PROGRAMS[name], device), 12).max() <= 1 + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_choices_that_are_many_random_states_cost_no_more_than_the_states(name, device):
    assert shares_of_states(began(*PROGRAMS[name], device), 100, seed=1).max() <= 1 + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", STEPS)
def test_choices_that_are_states_of_training_steps_cost_no_more_than_the_states(name, device):
    model, config = STEPS[name]
    start = began(model.step(config), model.abstract_args(config), device, donated=(0, 1))
    assert shares_of_states(start, 20, seed=2).max() <= 1 + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 10))
def test_choices_that_are_states_of_random_programs_cost_no_more_than_the_states(first):
    for seed in range(first, first + 10):
        program = RandomProgram(seed, 16)
        start = began(program, (program.inputs(),), DEVICES[seed % 3])
        assert shares_of_states(start, 8, seed=seed).max() <= 1 + 1e-9, seed


def test_op_each_at_its_cheapest_is_a_bound_below_the_one_that_moves_are_part_of():
    model = model_of(task_of(Partitioning(two_matrices(), MESH)))
    assert 0 < each_apart(model) <= lower_bound(model, StepSeconds(), 20.0).score * (1 + 1e-6)


# ---- moves


@pytest.mark.parametrize(
    ("axes", "device"),
    [
        ({"a": 16, "b": 4}, "h100"),
        ({"a": 2, "b": 8}, "h100"),
        ({"a": 6, "b": 4}, "tpu_v4"),
        ({"a": 32, "b": 2}, "tpu_v3"),
    ],
    ids=str,
)
def test_no_move_costs_less_than_the_bound_says_where_axes_span_several_fabrics(axes, device):
    mesh, type_ = ap.Mesh(axes, device=device), TensorType((192, 3072), "f32")
    labels = tuple(legal_labels(type_.shape, [[0, 1, 2, SUM]] * 2, mesh.axis_sizes))
    task = task_of(Partitioning(two_matrices(), mesh))
    least = PriceJob(type_, labels).answer(task)[0]
    for i, source in enumerate(labels):
        exact = np.array(ExactJob(type_, tuple((source, target) for target in labels)).answer(task))
        assert (least[i] <= exact * (1 + 1e-9)).all()


def test_tiles_that_become_whole_cost_about_a_gather_though_another_axis_changes_its_dim():
    mesh, type_ = ap.Mesh({"a": 16, "b": 2}, device="tpu_v3"), TensorType((48, 1024, 4096), "f32")
    task, move = task_of(Partitioning(two_matrices(), mesh)), ((3, 1), (0, 2))
    least = PriceJob(type_, move).answer(task)[0][0, 1]
    ((exact,),) = (ExactJob(type_, (move,)).answer(task),)
    assert 0.25 * exact < least <= exact


def test_planned_moves_raise_the_bounds_tables_to_what_a_lowering_pays():
    task = task_of(Partitioning(two_matrices(), ap.Mesh({"a": 4, "b": 2}, device="tpu_v3")))
    model = model_of(task)
    type_ = model.nodes.start.program.type_of(int(model.nodes.start.program.arguments[0]))
    pair = (type_, (1, 1), (0, 2))
    rows = (USE, DEF, WAIT)
    jobs = least_jobs((*pair, row) for row in rows)
    assert jobs == [LeastJob(type_, tuple((*pair[1:], row) for row in rows))]
    model.table.learn_least(jobs, [job.answer(task) for job in jobs])
    (exact,) = ExactJob(type_, (pair[1:],)).answer(task)
    source, target = ((pair[1],), (pair[2],))
    assert model.table.seconds(type_, source, target, USE)[0, 0] == pytest.approx(exact)
    assert model.table.seconds(type_, source, target, DEF)[0, 0] <= exact * (1 + 1e-9)
    assert pair in model.flow.pairs()


def test_sum_that_waits_for_its_reader_costs_the_cheaper_of_both_ways():
    task = task_of(Partitioning(two_matrices(), MESH))
    type_ = TensorType((1024, 4096), "f32")
    moves = tuple(((SUM, 0), (1, 0), row) for row in (USE, DEF, WAIT))
    before_use, after_op, waits = LeastJob(type_, moves).answer(task)
    assert 0 < after_op == waits < before_use, "less a latency that it may share"


def test_rows_of_a_window_are_moved_between_neighbours_or_sliced_of_the_whole():
    image, kernel = f32(8, 32, 32, 64), f32(3, 3, 64, 64)
    dims = ("NHWC", "HWIO", "NHWC")
    start = began(
        lambda x, k: jax.lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=dims),
        (image, kernel),
        "tpu_v3",
    )
    task = task_of(start)
    model = model_of(task)
    node = next(n for n, made in enumerate(model.nodes.strategies) if made is not None and len(made.required) == 2)
    reads = next(label for label in model.nodes.strategies[node].required[0] if stretches_of(label) and label[1] == 0)
    tile, type_ = in_tiles(reads), TensorType(image.shape, "f32")
    assert tile in ((2, 0), (3, 0))
    job = PriceJob(type_, ((0, 0), tile, reads))
    least = job.answer(task)[0]
    (from_whole, from_tile), (gather,) = (ExactJob(type_, pairs).answer(task) for pairs in (
        (((0, 0), reads), (tile, reads)), ((tile, (0, 0)),),
    ))  # fmt: skip
    assert from_whole == least[0, 2] == 0, "every device slices what it reads"
    assert 0 < least[1, 2] <= from_tile * (1 + 1e-9) <= gather
