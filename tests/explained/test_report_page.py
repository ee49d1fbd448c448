"""Is the report one page that says all it should, of hostile names and of large programs too, and needs no network?"""

from __future__ import annotations

import functools
import json
import re
import time
from html.parser import HTMLParser

import jax
import jax.numpy as jnp
import pytest

import autopart as ap
from autopart.api.compared.sweep_rows import SweepRow
from autopart.api.report.charts import Bar, area, bars, falling, highest_of_each
from autopart.api.report.mesh_drawing import mesh_drawing
from autopart.api.report.page import Sheet, report_page
from autopart.api.report.parts_of_hosts import hosts
from autopart.api.report.sections import grouped_buffers
from autopart.api.report.side_by_side import side_by_side
from autopart.api.report.trouble import trouble
from autopart.api.report.where_time_goes import by_class, by_collective, by_line
from autopart.costmodel.breakdown import BufferRow
from autopart.costmodel.hardware.devices import device as device_named
from autopart.costmodel.utilization import product_flop, rooflines, seconds_by_axis, tokens_found, utilization
from tests.explained.programs import ARGS, MESH, array, lowered, step

VOID = {"meta", "input", "br", "rect", "line", "polygon", "polyline"}
"""Elements that are not closed, or close themselves."""


class Strict(HTMLParser):
    """Fails where tags do not nest, an id is there twice, or something is loaded; collects text and ids."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.text: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        assert not any(name.startswith("on") for name in given), (tag, given)
        assert not {"src", "srcset", "action"} & set(given), (tag, given)
        assert given.get("href", "#").startswith("#"), (tag, given)
        self.tags.append(tag)
        self.ids += [given["id"]] if "id" in given else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "script" not in self.open and "style" not in self.open:
            self.text.append(data)


def read(page: str) -> Strict:
    parser = Strict()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    assert len(parser.ids) == len(set(parser.ids))
    return parser


def page_of(low: ap.Lowered) -> str:
    return report_page(Sheet(low.metadata, low.scheduled))


@functools.cache
def searched() -> ap.Lowered:
    auto = ap.AutomaticPartition(["batch", "model"], optimizer="greedy", budget=ap.Budget(40), cache=False, name="Auto")
    return ap.jit(step, MESH, [auto], donate_argnums=0).lower(*ARGS)


def test_the_page_is_well_formed_and_says_what_it_should(tmp_path):
    where = searched().report(tmp_path / "report.html")
    assert where.is_absolute()
    page = where.read_text()
    parsed = read(page)
    for key in ("tactics", "baselines", "memory", "time", "layouts", "search", "code", "ops"):
        assert key in parsed.ids
    text = " ".join(parsed.text)
    report = searched().metadata.tactics[0].report
    assert all(row["name"] in text for row in report["baselines"])
    assert "Auto found" in text
    assert "all_reduce" in text
    assert "programs.py:" in text
    assert f"{report['evaluations']} evaluations" in text
    assert "schedule = [" in text
    assert "default-src 'none'" in page
    assert not re.search(r"https?://", page)


def test_its_data_has_every_argument_and_output():
    page = page_of(lowered("BP+MP+Z3"))
    [data] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    rows = {row[0]: row for row in json.loads(data)["layouts"]["rows"]}
    metadata = lowered("BP+MP+Z3").metadata
    assert set(rows) == {*metadata.in_specs, *metadata.out_specs}
    assert rows["params/up"] == ["params/up", "f32[256,512]", "[batch, model]", "524 kB"]


@pytest.mark.parametrize("schedule", ["", "BP", "BP+MP"])
def test_any_schedule_and_no_device_give_a_page(schedule):
    for device in ("tpu_v3", None):
        parsed = read(page_of(lowered(schedule, device)))
        assert ("time" in parsed.ids) == (device is not None)


def test_a_program_without_arguments_or_ops_gives_a_page():
    read(page_of(ap.jit(lambda: jnp.zeros(3), MESH).lower()))
    read(page_of(ap.jit(lambda x: x, MESH).lower(array(4))))


EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\n\x00\u202e"


def test_hostile_names_are_text():
    axis = EVIL.removesuffix("\u202e")  # axes are ASCII
    mesh = ap.Mesh({axis: 2}, device="tpu_v3")
    tactic = ap.ManualPartition({"*": 0}, axis=axis, name=EVIL)
    low = ap.jit(lambda d: {EVIL: ap.tag(EVIL, d[EVIL] * 2)}, mesh, [tactic]).lower({EVIL: array(8, 8)})
    page = page_of(low)
    parsed = read(page)
    assert parsed.tags.count("script") == 2
    assert "img" not in parsed.tags
    assert any("onerror=alert(2)" in text for text in parsed.text)
    assert "\x00" not in page
    assert "\u202e" not in page
    for shown in (low.metadata, low.explain("*"), low.what_if({"*": 1}, axis=axis), low.estimate):
        assert "<script>" not in shown._repr_html_()


def test_seconds_by_class_and_by_collective_add_up_to_the_step():
    for schedule in ("", "BP", "BP+MP+Z3"):
        estimate = lowered(schedule).estimate
        run = estimate.simulation
        classes, kinds = by_class(run), by_collective(estimate)
        assert sum(classes.values()) + sum(s for s, _, _ in kinds.values()) == pytest.approx(run.serial_s)
        assert sum(map(sum, by_line(run).values())) == pytest.approx(run.serial_s)


def test_memory_shows_its_peak_however_long_the_program():
    live = lowered("BP").estimate.simulation.live
    assert highest_of_each(live, 7).max() == live.max()
    assert len(highest_of_each(live, 7)) == 7
    assert len(highest_of_each(live[:3], 7)) == 3
    assert area(live[:1], 1.0, 2.0, None).count("<polygon") == 1


def test_drawings_colour_devices_by_the_part_that_they_hold():
    def colours(spec):
        return re.findall(r'fill="([^"]*)"', mesh_drawing([2, 3], ["a", "b"], spec))

    assert len(set(colours([()]))) == 1
    rows = colours([("a",)])
    assert rows[:3] == [rows[0]] * 3
    assert len(set(rows)) == 2
    assert len(set(colours([("a",), ("b",)]))) == 6
    assert len(re.findall("<rect", mesh_drawing([64, 64], ["a", "b"], [()]))) == 64


def test_charts_of_nothing_and_of_what_does_not_fit_are_drawn():
    assert "<span" not in bars([])
    assert "width:100.00%" in bars([Bar("x", float("inf"), "inf")])
    assert "NaN" not in falling([(0.0, 2.0)], 0.0, 0.0, 2.0, 1.0)


@functools.cache
def large() -> ap.Lowered:
    """A program of more than 20,000 ops, with 5,000 arguments."""
    arguments = [array(8, 8)] * 5000
    return ap.jit(lambda xs: [jnp.tanh(x @ x) * 2 for x in xs], MESH, []).lower(arguments)


@pytest.mark.slow
def test_a_program_of_twenty_thousand_ops_gives_a_small_page_in_seconds():
    low = large()
    assert low.traced.program.op_count > 20_000
    began = time.process_time()
    page = page_of(low)
    assert time.process_time() - began < 10
    assert len(page) < 2_000_000
    assert read(page).tags.count("td") < 2000


def test_a_page_says_what_a_step_makes_of_its_hardware():
    low = lowered("BP+MP+Z3")
    page = report_page(Sheet(low.metadata, low.scheduled, tokens=64))
    parsed = read(page)
    assert {"axes", "timeline", "roofline"} <= set(parsed.ids)
    text = " ".join(parsed.text)
    assert "MFU" in text
    assert "64 in a step (as told)" in text
    assert parsed.tags.count("rect") > 10
    run = low.estimate.simulation
    assert sum(total.seconds for total in seconds_by_axis(run).values()) == pytest.approx(run.collective_s)
    kernels = rooflines(run)
    assert (kernels.share <= 1.0 + 1e-9).all()
    assert kernels.seconds.sum() == pytest.approx(run.compute_s, rel=0.2)
    assert 0 < utilization(run.local.program, device_named("tpu_v3"), 8, low.estimate.step_s) < 1


def test_tokens_are_those_of_the_largest_input_of_integers():
    rows = jax.ShapeDtypeStruct((16, 256), "int32"), jax.ShapeDtypeStruct((16, 8), "int32")
    low = ap.jit(lambda w, x, y: w[x].sum() + y.sum(), MESH, []).lower(array(8, 8), *rows)
    assert tokens_found(low.traced.program) == (4096, "x: i32[16,256]")
    assert tokens_found(lowered("BP").traced.program) is None


def test_products_are_counted_once_however_they_are_divided():
    program = ap.jit(lambda x, w: x @ w, MESH, []).lower(array(64, 32), array(32, 16)).traced.program
    assert product_flop(program) == {"f32": 2 * 64 * 32 * 16}


def test_equal_buffers_are_one_row_and_numbered_scopes_are_alike():
    rows = [BufferRow("add f32[8]", 32.0, f"lm.py:70 layer_{n}/add", f"p/{n}/w") for n in range(31)]
    alone = BufferRow("dot f32[64]", 256.0, "lm.py:9 dot", "p/0/v")
    assert grouped_buffers([*rows, alone]) == [
        (31, 32.0, "add f32[8]", "p/*/w", "lm.py:70 layer_*/add"), (1, 256.0, "dot f32[64]", "p/0/v", "lm.py:9 dot"),
    ]  # fmt: skip


def test_parameters_stand_before_state_and_what_is_whole_is_folded():
    page = page_of(searched())
    shown = re.findall(r"<b>((?:params|opt_state|x)[^<]*)</b>", page)
    roles = [("params", "opt_state", "x").index(re.match(r"params|opt_state|x", name).group()) for name in shown]
    assert roles == sorted(roles)
    low = ap.jit(step, MESH, [ap.ManualPartition({"x": 0}, axis="batch")], donate_argnums=0).lower(*ARGS)
    assert "that every device holds whole" in page_of(low)


def test_hosts_hold_the_parts_that_their_devices_have():
    mesh = ap.Mesh({"data": 4, "model": 8}, device="h100")
    tactics = [ap.ManualPartition({"x": 0}, axis="data"), ap.ManualPartition({"w": 1}, axis="model")]
    low = ap.jit(lambda x, w: x @ w, mesh, tactics).lower(array(64, 32), array(32, 64))
    table = hosts(low.metadata, low.traced.program, mesh, None)
    assert "4 hosts of 8 devices each" in table
    rows = [re.findall("<td>(.*?)</td>", row) for row in table.split("<tr>")[2:]]
    assert {row[-1]: row[1:4] for row in rows} == {"x": ["4", "1", "1"], "w": ["8", "8", "4"]}
    assert hosts(low.metadata, low.traced.program, ap.Mesh({"data": 2, "model": 4}, device="h100"), None) == ""


def test_two_programs_stand_side_by_side():
    one, other = lowered("BP"), lowered("BP+MP")
    page = side_by_side(one.metadata, one.estimate, (other.metadata, other.estimate))
    assert "Arguments that lie otherwise" in page
    assert "[-, model]" in page
    assert "All arguments lie alike" in side_by_side(one.metadata, one.estimate, (one.metadata, one.estimate))


def test_named_schedules_are_there_without_a_search(tmp_path):
    page = lowered("BP").report(tmp_path / "with.html").read_text()
    assert "this plan" in page
    assert 'id="baselines"' not in lowered("BP").report(tmp_path / "without.html", named=False).read_text()


def test_each_complaint_has_something_to_try():
    low = ap.jit(lambda x: x @ x.T, MESH, [ap.ManualPartition({"x": 0}, axis="batch")]).lower(array(64, 64))
    assert low.conflicts
    said = trouble(low.metadata)
    assert said.count("try") >= 1
    assert "ap.tag" in said
    assert "way out" in low.conflicts._repr_html_()


def test_notebooks_show_tables():
    low = lowered("BP+MP")
    for shown in (low.metadata, low.estimate, low.explain("params/up"), low.what_if({"params/up": 0}, axis="model")):
        read(f"<div>{shown._repr_html_()}</div>")
    for shown in (low, low.mesh, low.plan, ap.named_schedules(low), low.conflicts):
        read(f"<div>{shown._repr_html_()}</div>")
    for shown in (low.estimate.top(3), low.plan.diff(low.plan), lowered("BP").plan.diff(low.plan)):
        read(f"<div>{shown._repr_html_()}</div>")
    compared = ap.verify_kernel(ap.kernel(jnp.tanh, rule="a b -> a b"), array(4, 8))
    assert "<th>agrees</th>" in compared._repr_html_()
    assert "<th>all_reduce</th>" in low.metadata._repr_html_()
    assert "step, collectives in turn" in low.estimate._repr_html_()
    sweep = ap.Sweep((SweepRow(MESH, error="no <b>"),), "tpu_v3")
    assert "no &lt;b&gt;" in sweep._repr_html_()


def test_a_path_that_is_none_is_an_error(tmp_path):
    with pytest.raises(ap.ArgumentError, match=r"Lowered\.report"):
        lowered("BP").report(3)
