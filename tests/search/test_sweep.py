"""Does a sweep search every mesh, give up hopeless ones, and hand back something to run?"""

from __future__ import annotations

import csv
import json

import jax
import jax.numpy as jnp
import pytest

import autopart as ap
from autopart.api.compared.sweep import factorisations
from experiments.models import t32
from tests.search.steps import PeakBytes

ARGS = t32.abstract_args(t32.SMALL)
SETTINGS = {"devices": 8, "device": "tpu_v3", "donate_argnums": (0, 1), "budget": ap.Budget(60), "cache": False}


@pytest.fixture(scope="module")
def result() -> ap.Sweep:
    return ap.sweep(t32.step(t32.SMALL), ARGS, objective=PeakBytes(), **SETTINGS)


def test_every_factorisation_is_a_mesh():
    found = [tuple(f.values()) for f in factorisations(12, ("a", "b", "c"))]
    assert len(found) == len(set(found)) == 18
    assert all(a * b * c == 12 for a, b, c in found)


def test_every_mesh_has_a_row_and_the_best_is_one_of_them(result):
    assert [row.mesh.axis_sizes for row in result.rows] == [(8, 1), (4, 2), (2, 4), (1, 8)]
    assert result.best in result.rows
    assert result.best.peak_bytes == min(row.peak_bytes for row in result.rows)
    assert "best" in str(result)


def test_a_row_says_whether_its_mesh_was_searched_to_the_end(result):
    """A budget of 60 is no more than named schedules may take: all meshes are searched with all of it."""
    for row in result.rows:
        assert 0 < row.evaluations <= (60 if row.searched else 64)
    assert result.best.searched
    note = {
        row.mesh: "given up early" in line for row, line in zip(result.rows, str(result).splitlines()[1:], strict=True)
    }
    assert note == {row.mesh: not row.searched for row in result.rows}


def test_the_best_row_can_be_used_and_costs_what_it_says(result):
    best = result.best
    step = ap.jit(t32.step(t32.SMALL), best.mesh, [best.tactic], donate_argnums=(0, 1))
    row = step.lower(*ARGS).metadata.tactics[-1]
    assert (row.step_s, row.peak_bytes) == (best.step_s, best.peak_bytes)


def test_kinds_of_devices_and_batches_are_compared_by_token():
    def args_of(batch):
        return jax.ShapeDtypeStruct((64, 32), "float32"), jax.ShapeDtypeStruct((batch, 16), "int32")

    def fun(table, x):
        return jnp.tanh(table[x] @ table.T).sum()

    kinds = {"h100": 2, "tpu_v5p": 2}
    sweep = ap.sweep(
        fun, args_of, batches=(8, 16), devices=kinds, axes=["batch"], price={"h100": 2.0, "tpu_v5p": 4.0},
        budget=ap.Budget(4), cache=False,
    )  # fmt: skip
    assert [(r.mesh.device, r.batch_size, r.tokens) for r in sweep.rows] == [
        ("h100", 8, 128), ("tpu_v5p", 8, 128), ("h100", 16, 256), ("tpu_v5p", 16, 256),
    ]  # fmt: skip
    assert sweep.best.price_per_mtoken == min(r.price_per_mtoken for r in sweep.rows)
    assert sweep.best.price_per_mtoken == pytest.approx(
        sweep.best.price * 2 / 3600 * sweep.best.step_s / sweep.best.tokens * 1e6
    )
    for row in sweep.rows:
        beaten = any(
            o.step_s <= row.step_s and o.peak_bytes <= row.peak_bytes and o.batch_size >= row.batch_size
            and (o.step_s, o.peak_bytes, o.batch_size) != (row.step_s, row.peak_bytes, row.batch_size)
            for o in sweep.rows
        )  # fmt: skip
        assert (row in sweep.pareto) == (not beaten)
    assert {"device", "batch", "MFU", "tokens/s", "$/Mtoken"} <= set(str(sweep).splitlines()[0].split())


def test_tables_are_written(result, tmp_path):
    rows = list(csv.DictReader(result.to_csv(tmp_path / "sweep.csv").splitlines()))
    assert [int(r["batch"]) * int(r["model"]) for r in rows] == [8] * 4
    assert float(rows[1]["step_s"]) == result.rows[1].step_s
    assert json.loads(result.to_json(tmp_path / "sweep.json"))["rows"][0]["mesh"] == {"batch": 8, "model": 1}
    assert (tmp_path / "sweep.csv").read_text() == result.to_csv()


def test_the_plot_is_written(result, tmp_path):
    pytest.importorskip("matplotlib")
    result.plot(tmp_path / "sweep.svg")
    assert "batch:4" in (tmp_path / "sweep.svg").read_text()


def test_a_schedule_that_is_not_legal_on_a_mesh_is_a_row_that_says_so():
    heads = ap.ManualPartition({"params": {"*/qkv": 2}}, axis="model")
    result = ap.sweep(t32.step(t32.SMALL), ARGS, schedule=[heads], **{**SETTINGS, "budget": ap.Budget(8)})
    assert "4 is not a multiple of 8" in result.rows[3].error
    assert result.rows[2].error == ""
    assert result.best.error == ""


def test_a_table_of_meshes_that_cannot_be_used_says_so():
    result = ap.sweep(t32.step(t32.SMALL), ARGS, schedule="DP(data)", **{**SETTINGS, "budget": ap.Budget(0)})
    assert str(result).endswith("none could be used")


@pytest.mark.slow
def test_processes_find_what_this_process_finds():
    few = {**SETTINGS, "devices": 4, "budget": ap.Budget(16)}
    here = ap.sweep(t32.step(t32.SMALL), ARGS, objective=PeakBytes(), **few)
    there = ap.sweep(t32.step(t32.SMALL), ARGS, objective=PeakBytes(), executor=ap.Processes(2), **few)
    assert there.to_csv() == here.to_csv()


@pytest.mark.parametrize("devices", [0, -8, 2.5, True])
def test_a_bad_number_of_devices_is_refused(devices):
    with pytest.raises(ap.MeshError, match="devices"):
        ap.sweep(t32.step(t32.SMALL), ARGS, devices=devices, device="tpu_v3")


def test_given_meshes_need_neither_a_number_of_devices_nor_a_device():
    meshes = [ap.Mesh({"batch": 4}, device="tpu_v3"), ap.Mesh({"batch": 8}, device="a100_40gb")]
    swept = ap.sweep(t32.step(t32.SMALL), ARGS, meshes=meshes, budget=ap.Budget(2), cache=False)
    assert [row.mesh for row in swept.rows] == meshes
    assert swept.device is None
