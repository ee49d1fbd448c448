"""Is the result of a search never worse than a named schedule, with any optimizer and any budget? Does it say so?"""

from __future__ import annotations

import dataclasses
import re

import pytest

import autopart as ap
from autopart.base.units import bytes_text
from autopart.core.table.partitioning import Partitioning
from autopart.costmodel import Network, Switch
from autopart.costmodel.hardware.devices import DEVICES
from autopart.search.baselines import MOST
from autopart.search.optimizers.optimizer import optimizers
from autopart.search.search import Search, SearchResult, search
from tests.prompt import only
from tests.search.programs import MESH, PROGRAMS, program

ALL = ap.Budget(MOST)
QUICK = ("inference", "cached", "stacked", "adapters")


def found(name: str, optimizer="random", budget=ALL, mesh=MESH, **settings) -> SearchResult:
    wanted = Search(axes=mesh.axis_names, optimizer=optimizer, budget=budget, cache=False, **settings)
    return search(Partitioning(program(name), mesh), wanted)


def best_baseline(report) -> list[float]:
    return min(row["rank"] for row in report["baselines"])


def rank(result: SearchResult) -> list[float]:
    assert result.best is not None
    return list(result.best.cost.rank[:2])


@pytest.mark.parametrize("name", only(QUICK, PROGRAMS))
def test_an_evaluation_per_named_schedule_is_enough_to_be_no_worse_than_any(name):
    all_of_them = found(name).report["baselines"]
    count = len(all_of_them) - 1
    exact = found(name, budget=ap.Budget(count))
    assert exact.report["evaluations"] == count
    assert exact.report["baselines"] == all_of_them
    assert rank(exact) == best_baseline(exact.report)


BUDGETS = [
    pytest.param(
        name,
        budget,
        id=f"{name}-{budget}",
        marks=[pytest.mark.slow] if name not in ("greedy", "mcts") and budget.evaluations else [],
    )
    for name in sorted(optimizers())
    for budget in [ap.Budget(MOST), ap.Budget(90), ap.Budget(None, 0.01)]
]
"""An integer program takes a second for each plan: with many plans it is slow. Of the others, two are prompt enough."""


@pytest.mark.parametrize(("optimizer", "budget"), BUDGETS)
def test_no_optimizer_is_worse_than_a_named_schedule_or_the_start(optimizer, budget):
    result = found("gated", optimizer, budget)
    bound = best_baseline(found("gated").report)
    assert rank(result) <= bound


def test_a_small_budget_costs_the_likeliest_first():
    names = [row["name"] for row in found("perceptron", budget=ap.Budget(3)).report["baselines"]]
    assert names == ["replicated", "DP(a,b)", "FSDP(a,b)", "DP(a)+Megatron(b)"]
    assert found("perceptron", budget=ap.Budget(0)).report["baselines"][1:] == []


def test_state_in_parts_comes_first_where_whole_state_fills_the_memory():
    chip = ap.Device(
        "small_memory", peak_flop_per_s={"f32": 1e12}, hbm_bytes=18e6, hbm_bytes_per_s=1e11, fast=Switch(8, 1e11, 1e-6),
        network=Network(1e10, 1e-5), source="made up for a test",
    )  # fmt: skip
    with DEVICES.temporarily(chip.name, chip):
        mesh = ap.Mesh({"a": 4, "b": 2}, device=chip.name)
        names = [row["name"] for row in found("perceptron", budget=ap.Budget(1), mesh=mesh).report["baselines"]]
    assert names[1] == "FSDP(a,b)"


@pytest.mark.slow
def test_named_schedules_are_few_and_each_costed_once():
    for name in PROGRAMS:
        for mesh in (MESH, ap.Mesh({"x": 2, "y": 2, "z": 2}, device="h100")):
            rows = found(name, mesh=mesh).report["baselines"]
            names = [row["name"] for row in rows]
            assert len(names) == len(set(names)) <= MOST + 1


def test_axes_that_are_alike_are_not_tried_in_every_order():
    mesh = ap.Mesh({"x": 2, "y": 2}, device="h100")
    names = {row["name"] for row in found("perceptron", mesh=mesh).report["baselines"]}
    assert ("DP(x)+Megatron(y)" in names) != ("Megatron(x)+DP(y)" in names)


def test_without_baselines_none_is_costed():
    report = found("perceptron", "greedy", baselines=False).report
    assert [row["name"] for row in report["baselines"]] == ["replicated"]


def test_a_search_among_tactics_is_no_worse_than_what_they_left():
    fun, args, donated = PROGRAMS["perceptron"]()
    auto = ap.AutomaticPartition(["a", "b"], optimizer="random", budget=ap.Budget(5), cache=False)
    before = ap.Parallelism("DP(a)")
    low = ap.jit(fun, MESH, [before, auto], donate_argnums=donated).lower(*args)
    first, second = low.metadata.tactics
    assert second.report["baselines"][0]["name"] == "earlier tactics"
    assert second.report["baselines"][0]["step_s"] == first.step_s
    assert low.estimate.step_s <= first.step_s


def test_the_report_says_that_the_result_is_a_named_schedule_and_what_comes_next():
    report = found("perceptron").report
    count = len(report["baselines"]) - 1
    report = found("perceptron", budget=ap.Budget(count)).report
    assert report["named"] in {row["name"] for row in report["baselines"]}
    ranked = sorted(report["baselines"], key=lambda row: row["rank"])
    assert report["remarks"][0].startswith(f"the result is {ranked[0]['name']} exactly; the next best takes ")
    assert bytes_text(ranked[1]["peak_bytes"]) in report["remarks"][0]


def test_the_report_says_that_an_axis_is_not_used_and_what_using_it_would_cost():
    slow = ap.Device(
        "slow_network", peak_flop_per_s={"f32": 1e10}, hbm_bytes=1e10, hbm_bytes_per_s=1e9, fast=Switch(4, 1e11, 1e-6),
        network=Network(1e9, 5.0), source="made up for a test",
    )  # fmt: skip
    with DEVICES.temporarily(slow.name, slow):
        result = found("perceptron", mesh=ap.Mesh({"across": 2, "within": 4}, device=slow.name))
    assert result.report["unused_axes"] == ["across"]
    (remark,) = result.report["remarks"][-1:]
    assert remark.startswith('axis "across" is not used: the best found that uses it takes')
    seconds = {unit: scale for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))}
    with_it, without = (
        float(number) * seconds[unit] for number, unit in re.findall(r"(?:takes|against) ([\d.]+) (\w+)", remark)
    )
    assert with_it >= without == pytest.approx(result.best.cost.step_s, rel=0.01)
    ratio = re.search(r"\(([-+\d.e]+) (%|times)\)$", remark)
    assert ratio
    more = float(ratio[1]) if ratio[2] == "times" else 1 + float(ratio[1]) / 100
    assert more == pytest.approx(with_it / without, rel=0.06)


def test_the_metadata_prints_the_named_schedules_beside_the_result():
    fun, args, donated = PROGRAMS["gated"]()
    auto = ap.AutomaticPartition(["a", "b"], optimizer="greedy", budget=ap.Budget(100), cache=False)
    metadata = ap.jit(fun, MESH, [auto], donate_argnums=donated).lower(*args).metadata
    text = str(metadata)
    assert "AutomaticPartition[a,b], beside named schedules:" in text
    best = min(metadata.tactics[-1].report["baselines"], key=lambda row: row["rank"])
    assert best["name"] in text
    assert ap.Metadata.from_json(metadata.to_json()).to_json() == metadata.to_json()


def test_given_schedules_come_before_the_named_ones():
    fun, args, donated = PROGRAMS["perceptron"]()
    seed = [ap.ManualPartition({"data/0": 0}, axis="a")]
    auto = ap.AutomaticPartition(["a", "b"], optimizer="random", budget=ap.Budget(2), cache=False, seeds=[seed])
    report = ap.jit(fun, MESH, [auto], donate_argnums=donated).lower(*args).metadata.tactics[-1].report
    assert [row["name"] for row in report["baselines"]] == ["replicated", "given 1", "DP(a,b)"]


def test_workers_are_no_part_of_the_baselines():
    from autopart.search.contract import OutOfOrder

    alone, together = found("gated").report["baselines"], found("gated", executor=OutOfOrder()).report["baselines"]
    assert alone == together


def test_a_named_schedule_that_raises_is_blamed_itself():
    from autopart.search.space.named_schedules import NAMED_SCHEDULES, Named, NamedSchedule

    @dataclasses.dataclass(frozen=True)
    class Elsewhere(NamedSchedule):
        def decisions(self, space):
            yield Named("Elsewhere(c)", (), ("c",))

    with NAMED_SCHEDULES.temporarily("Elsewhere", Elsewhere), pytest.raises(ap.MeshError, match="Elsewhere"):
        found("perceptron")
