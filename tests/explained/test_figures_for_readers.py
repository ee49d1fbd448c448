"""Do figures have the unit that fits them, wherever they are printed, for the smallest programs as for the largest?"""

from __future__ import annotations

import functools
import re
from types import SimpleNamespace

import jax.numpy as jnp
import pytest

import autopart as ap
from autopart.base.units import bytes_text, seconds_text
from autopart.search.progress import ProgressLine
from tests.explained.programs import array

MESH = ap.Mesh({"data": 4}, device="tpu_v3")
SEARCH = ap.AutomaticPartition(["data"], "greedy", ap.Budget(8), cache=False)
AWKWARD = re.compile(r"\de-\d|\b0\.0\d* (GB|MB|kB|s|ms)\b|\b\d{4,}\.?\d* (GB|MB|kB|ms|us|ns)\b")
"""3.28e-05 GB, 0.04 s, 2400 GB: figures whose unit does not fit them."""


def step(w, x):
    return jnp.mean(jnp.tanh(x @ w) ** 2)


@functools.cache
def tiny() -> ap.Lowered:
    return ap.jit(step, MESH, [SEARCH]).lower(array(8, 4), array(8, 8))


@functools.cache
def swept() -> ap.Sweep:
    args = array(8, 4), array(8, 8)
    return ap.sweep(step, args, devices=2, device="tpu_v3", budget=ap.Budget(8), cache=False)


def progress() -> str:
    cost = SimpleNamespace(step_s=3e-6, peak_bytes=32_800, fits=True)
    problem = SimpleNamespace(evaluations=3, evaluations_left=4, evaluations_per_s=80, best=SimpleNamespace(cost=cost))
    return ProgressLine("tiny").line(problem)


@pytest.mark.parametrize(
    "printed",
    [
        lambda: str(tiny().metadata),
        lambda: tiny().metadata._repr_html_(),
        lambda: str(tiny().estimate),
        lambda: str(tiny().estimate.top(5)),
        lambda: str(tiny().plan),
        lambda: str(tiny().explain("w")),
        lambda: str(tiny().what_if({"x": 0}, axis="data")),
        lambda: str(swept()),
        lambda: swept()._repr_html_(),
        progress,
    ],
    ids=["metadata", "html", "estimate", "top", "plan", "explain", "what_if", "sweep", "sweep_html", "progress"],
)
def test_figures_of_a_tiny_program_have_units_that_fit(printed):
    text = printed()
    assert AWKWARD.search(text) is None, AWKWARD.search(text)
    assert re.search(r"\d (B|kB|us|ns)\b", text)


def test_units_from_the_smallest_to_the_largest():
    assert [bytes_text(n) for n in (0, 12, 32_800, 2.4e12)] == ["0 B", "12 B", "32.8 kB", "2.4 TB"]
    assert [seconds_text(s) for s in (0, 4e-8, 7.1e-6, 23.3)] == ["0 s", "40 ns", "7.1 us", "23.3 s"]
    assert bytes_text(-32_800) == "-32.8 kB"
