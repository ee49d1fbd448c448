"""Which named schedules are found in programs of every sort, by structure alone? And what do their names mean?"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import autopart as ap
from autopart.core.table.partitioning import Partitioning
from autopart.search.space import DecisionSpace
from autopart.search.space.named.graphs import row_indices
from autopart.search.space.named_schedules import Named, found_schedules
from autopart.search.space.several_axes import combined, label_of
from tests.prompt import every, slow
from tests.search.programs import MESH, PROGRAMS, program, tiled


def space_of(name: str, donate: bool = True) -> DecisionSpace:
    return DecisionSpace.of(Partitioning(program(name, donate), MESH), ("a", "b"))


def tiles(name: str, label: str, donate: bool = True) -> dict[str, int]:
    """The arguments that a named schedule tiles along "b", with the dim; empty where the program has none of it."""
    space = space_of(name, donate)
    for named in found_schedules(space):
        if named.label == f"{label}(b)":
            for decision in named.decisions:
                space.apply(space.start, decision)
            return tiled(space.start, "b")
    return {}


DATA = {
    "perceptron": {"data/0": 0, "data/1": 0},
    "inference": {"x": 0},
    "two_towers": {"data/0": 0, "data/1": 0},
    "transported": {"data/0": 0, "data/1": 0},
    "critic": {"data/0": 0, "data/1": 0},
    "players": {"data/0": 0, "data/1": 0},
    "gated": {"data/0": 0, "data/1": 0},
    "routed": {"data/0": 0, "data/1": 0},
    "cached": {"cache": 0, "x": 0},
    "stacked": {"data/0": 0},
    "rollout": {"env": 0},
    "adapters": {"data/2": 0, "data/3": 0},
    "convolutions": {"data/0": 0, "data/1": 0},
    "recommender": {"data/0": 0, "data/1": 0, "data/2": 0},
}


@pytest.mark.parametrize("name", DATA)
def test_data_parallelism_tiles_the_batch_of_all_data_and_no_weight(name):
    assert tiles(name, "DP") == DATA[name]


@pytest.mark.parametrize("name", every(3, sorted(set(DATA) - {"cached"})))
def test_a_step_that_donates_nothing_has_the_same_data(name):
    assert tiles(name, "DP", donate=False) == DATA[name]


def test_state_that_is_not_donated_is_stored_in_parts_too():
    with_ties, without = space_of("gated"), space_of("gated", donate=False)
    assert {n.label for n in found_schedules(with_ties)} == {n.label for n in found_schedules(without)}
    assert tiles("gated", "ZeRO3", donate=False) == tiles("gated", "ZeRO3")


def test_a_graph_has_edges_and_nodes_in_place_of_a_batch():
    assert tiles("graph", "DP") == {}
    assert tiles("graph", "Edges") == {"data/1": 0, "data/2": 0}
    assert tiles("graph", "Nodes") == {"data/0": 0}
    assert tiles("graph", "Graph") == {"data/0": 0, "data/1": 0, "data/2": 0}


def test_edges_are_called_edges_where_the_nodes_have_most_of_the_work():
    assert tiles("graph_attention", "DP") == {}
    assert tiles("graph_attention", "Edges") == {"data/1": 0, "data/2": 0}
    assert tiles("graph_attention", "Nodes") == {"data/0": 0}
    assert tiles("graph_attention", "Graph") == {"data/0": 0, "data/1": 0, "data/2": 0}


@pytest.mark.parametrize("name", [n for n in PROGRAMS if not n.startswith("graph")])
def test_tokens_labels_and_positions_are_no_edges(name):
    found = program(name)
    assert not row_indices(found, space_of(name).facts.tied)


def parameters(found: dict[str, int]) -> dict[str, int]:
    return {name.partition("/")[2]: dim for name, dim in found.items() if name.startswith("params/")}


def test_megatron_tiles_hidden_dims_of_a_perceptron():
    assert parameters(tiles("perceptron", "Megatron")) == {"b1": 0, "w1": 1, "w2": 0}


def test_megatron_tiles_shared_heads_and_both_matrices_of_a_gated_block():
    layer = {"q": 1, "k": 1, "v": 1, "o": 0, "gate": 1, "up": 1, "down": 0}
    wanted = {f"layers/{n}/{name}": dim for n in range(2) for name, dim in layer.items()}
    assert parameters(tiles("gated", "Megatron")) == wanted
    assert parameters(tiles("gated", "MegatronVocab")) == {**wanted, "embedding": 0}


def test_megatron_of_a_decoder_with_a_cache_tiles_the_heads_of_both():
    assert tiles("cached", "Megatron") == {"p/q": 1, "p/kv": 2, "p/o": 0, "cache": 3}


def test_megatron_leaves_the_dim_of_stacked_layers_whole():
    assert parameters(tiles("stacked", "Megatron")) == {"w1": 2, "w2": 1}


def test_sequence_parallelism_turns_sums_of_blocks_into_parts_of_the_sequence():
    space = space_of("gated")
    found = {named.label: named for named in found_schedules(space)}
    plain, sequence = found["MegatronVocab(b)"].decisions, found["MegatronSP(b)"].decisions
    assert sequence[: len(plain)] == plain
    added = sequence[len(plain) :]
    assert added
    assert {d.dim for d in added if len(space.program.type_of(int(space.values(d)[0])).shape) == 3} == {1}


def test_context_parallelism_tiles_the_sequence_and_no_weight():
    found = tiles("gated", "Context")
    assert found == {"data/0": 1, "data/1": 1}


def test_experts_are_a_dim_that_a_matmul_runs_over_as_over_a_batch():
    found = parameters(tiles("routed", "Experts"))
    assert (found["up"], found["down"]) == (0, 0)
    found = parameters(tiles("routed_layers", "Experts"))
    assert (found["up"], found["down"]) == (1, 1), "of the layers of a scan, too"
    assert all(tiles(name, "Experts") == {} for name in ("perceptron", "gated", "stacked", "convolutions"))


def test_large_weights_are_dense_layers_behind_convolutions_and_tables_by_their_rows():
    found = tiles("convolutions", "LargeWeights")
    assert parameters(found) == {"dense": 1, "out": 0}
    assert (found["data/0"], found["data/1"]) == (0, 0)
    found = tiles("recommender", "LargeWeights")
    assert parameters(found) == {"users": 0, "items": 0}
    assert (found["data/0"], found["data/1"], found["data/2"]) == (0, 0, 0)


def test_experts_are_divided_over_the_axis_of_the_batch_too():
    found = tiles("routed", "GShard")
    weights = parameters(found)
    assert (weights["up"], weights["down"]) == (0, 0)
    assert (found["data/0"], found["data/1"]) == (0, 0)
    assert all(tiles(name, "GShard") == {} for name in ("perceptron", "gated", "stacked"))


def test_large_arrays_alone_are_stored_in_parts():
    found = parameters(tiles("convolutions", "ZeRO3Large"))
    assert found == {"dense": 0}
    assert tiles("graph", "ZeRO3Large") == {}


def test_no_weight_is_large_where_more_would_move():
    assert all(tiles(name, "LargeWeights") == {} for name in ("perceptron", "stacked", "graph"))


@pytest.mark.parametrize("kind", ["ZeRO2", "ZeRO3"])
def test_state_in_parts_leaves_the_dim_that_a_scan_walks_along_whole(kind):
    found = {name: dim for name, dim in tiles("stacked", kind).items() if "/" in name}
    assert found
    assert 0 not in found.values()


@pytest.mark.parametrize("name", ["inference", "graph"])
def test_a_program_without_state_has_none_in_parts(name):
    assert bool(tiles(name, "ZeRO3")) == (name == "graph")


def part(role: str, axis: str, stores: bool = False) -> Named:
    return Named(f"{role}({axis})", (), (axis,), stores)


def test_names_are_those_that_people_know():
    data = [part("DP", axis) for axis in "abc"]
    parts = [part("ZeRO3", axis, stores=True) for axis in "abc"]
    assert label_of([]) == "replicated"
    assert label_of(data[:2]) == "DP(a,b)"
    assert label_of([*data[:2], *parts[:2]]) == "FSDP(a,b)"
    assert label_of([*data[:2], parts[1]]) == "HSDP(a,b)"
    assert label_of([*data[:2], parts[0]]) == "HSDP(b,a)"
    assert label_of([*data, parts[2]]) == "DP(a,b,c)+ZeRO3(c)"
    assert label_of([data[0], part("Megatron", "b"), parts[0]]) == "FSDP(a)+Megatron(b)"


def test_a_part_that_does_nothing_is_not_in_the_name():
    space = space_of("perceptron")
    named = {n.label: n for n in found_schedules(space)}
    found = combined(space, [named["DP(a)"], named["DP(a)"], named["Megatron(b)"]])
    assert found.label == "DP(a)+Megatron(b)"
    assert found.state != combined(space, []).state


# ---- ap.named_schedules and ap.Parallelism


def listed(name: str):
    fun, args, donated = PROGRAMS[name]()
    return ap.named_schedules(fun, MESH, args, donate_argnums=donated)


@pytest.mark.parametrize("name", ["perceptron", slow("gated"), slow("graph"), "cached", slow("stacked")])
def test_each_named_schedule_is_a_tactic_that_costs_what_the_list_says(name):
    fun, args, donated = PROGRAMS[name]()
    found = listed(name)
    assert 4 <= len(found) <= 65
    for row in [found.best, *list(found)[::4]]:
        estimate = ap.jit(fun, MESH, row.schedule, donate_argnums=donated).lower(*args).estimate
        assert (estimate.step_s, estimate.peak_bytes) == (row.step_s, row.peak_bytes), row.name


THREE = ap.Mesh({"a": 2, "b": 2, "c": 2}, device="tpu_v3")


@pytest.mark.parametrize("name", every(5, sorted(PROGRAMS)))
def test_every_name_that_is_printed_over_three_axes_is_a_schedule_that_costs_what_its_row_says(name):
    fun, args, donated = PROGRAMS[name]()
    for row in ap.named_schedules(fun, THREE, args, donate_argnums=donated):
        estimate = ap.jit(fun, THREE, row.schedule, donate_argnums=donated).lower(*args).estimate
        assert estimate.step_s == pytest.approx(row.step_s, rel=1e-9), row.name
        assert estimate.peak_bytes == pytest.approx(row.peak_bytes, rel=1e-9), row.name


def test_loops_that_hold_parts_are_a_name_that_is_accepted_back():
    fun, args, donated = PROGRAMS["stacked"]()
    [*rows] = ap.named_schedules(fun, MESH, args, donate_argnums=donated)
    names = [row.name for row in rows if row.name.endswith("+ShardedLoops")]
    assert names
    for name in names:
        together = ap.jit(fun, MESH, [ap.Parallelism(name)], donate_argnums=donated).lower(*args)
        parts = [ap.Parallelism(name.removesuffix("+ShardedLoops")), ap.ShardedLoops()]
        assert together.estimate == ap.jit(fun, MESH, parts, donate_argnums=donated).lower(*args).estimate


def test_the_order_of_the_parts_in_a_name_does_not_matter():
    fun, args, donated = PROGRAMS["perceptron"]()
    one, other = (
        ap.jit(fun, MESH, [ap.Parallelism(name)], donate_argnums=donated).lower(*args).estimate
        for name in ("ZeRO3(a)+Megatron(b)+DP(a)", "DP(a)+Megatron(b)+ZeRO3(a)")
    )
    assert one == other


def test_named_schedules_are_found_by_name_and_by_place_the_best_first():
    found = listed("perceptron")
    assert found["DP(a,b)"] in list(found)
    assert found["replicated"].schedule == []
    assert found[0] == found.best
    assert str(found).splitlines()[0].startswith(found.best.name)
    with pytest.raises(ap.UnknownNameError, match="DP"):
        found["DP(a,c)"]


def test_a_lowered_program_lists_the_same():
    fun, args, donated = PROGRAMS["perceptron"]()
    low = ap.jit(fun, MESH, [ap.Parallelism("DP(a)")], donate_argnums=donated).lower(*args)
    assert ap.named_schedules(low) == listed("perceptron")


def test_every_name_of_the_list_is_one_that_a_tactic_knows():
    fun, args, donated = PROGRAMS["graph"]()
    for row in listed("graph"):
        low = ap.jit(fun, MESH, [ap.Parallelism(row.name)], donate_argnums=donated).lower(*args)
        assert low.estimate.step_s == row.step_s, row.name


def test_parallelism_composes_with_other_tactics():
    fun, args, donated = PROGRAMS["perceptron"]()
    together = ap.jit(fun, MESH, [ap.Parallelism("FSDP(a)+Megatron(b)")], donate_argnums=donated).lower(*args)
    apart = [ap.Parallelism("DP(a)"), ap.Parallelism("Megatron(b)"), ap.Parallelism("ZeRO3(a)")]
    assert ap.jit(fun, MESH, apart, donate_argnums=donated).lower(*args).estimate == together.estimate


@pytest.mark.parametrize(
    ("schedule", "error", "says"),
    [
        ("", ap.ArgumentError, "Parallelism"),
        ("DP", ap.ArgumentError, "no named schedule"),
        ("replicated(a)", ap.UnknownNameError, "DP"),
        ("DP(a)+", ap.ArgumentError, "no named schedule"),
        ("Magatron(a)", ap.UnknownNameError, "Megatron"),
        ("DP(c)", ap.MeshError, '"c"'),
        ("Experts(a)", ap.TileError, "the program has nothing for Experts"),
        ("DP(a)+DP(a)", ap.TileError, "another part says it already"),
    ],
)
def test_a_schedule_that_means_nothing_is_refused(schedule, error, says):
    fun, args, donated = PROGRAMS["perceptron"]()
    with pytest.raises(error, match=says.replace("(", r"\(").replace(")", r"\)")):
        ap.jit(fun, MESH, [ap.Parallelism(schedule)], donate_argnums=donated).lower(*args)


@pytest.mark.parametrize("wide", [256, 512, 1024])
def test_megatron_of_two_products_divides_hidden_dims_though_results_in_parts_leave_no_sum(wide):
    def forward(x, up, down):
        return jnp.tanh(x @ up) @ down

    x, up, down = (jax.ShapeDtypeStruct(s, "float32") for s in ((4096, 512), (512, 2048), (2048, wide)))
    specs = ap.jit(forward, MESH, "DP(a)+Megatron(b)").lower(x, up, down).metadata.in_specs
    assert specs == {"x": (("a",),), "up": ((), ("b",)), "down": (("b",),)}


def test_spaces_between_parts_and_axes_say_nothing():
    fun, args, donated = PROGRAMS["perceptron"]()
    plain, spaced = (
        ap.jit(fun, MESH, text, donate_argnums=donated).lower(*args).metadata.in_specs
        for text in ("FSDP(a)+Megatron(b)", " FSDP( a ) +\n Megatron (b) ")
    )
    assert spaced == plain


def test_fsdp_of_a_program_without_state_says_that_there_is_none():
    fun, args, _ = PROGRAMS["inference"]()
    with pytest.raises(ap.TileError, match="no argument is state") as caught:
        ap.jit(fun, MESH, "FSDP(a)").lower(*args)
    assert "donate_argnums" in caught.value.hint


def test_named_schedules_need_a_mesh_and_a_device():
    fun, args, _ = PROGRAMS["inference"]()
    with pytest.raises(ap.ArgumentError, match="on which mesh"):
        ap.named_schedules(fun, args=args)
    with pytest.raises(ap.MeshError, match="names no device"):
        ap.named_schedules(fun, ap.Mesh({"a": 4}), args)
