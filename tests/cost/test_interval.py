"""Do estimates state what nine of ten like them lie in, from what the experiments keep?"""

import json

import jax.numpy as jnp
import pytest

import autopart as ap
from autopart.costmodel.hardware.device_file import write_device
from autopart.costmodel.interval import interval
from experiments import intervals


def estimate_on(device):
    mesh = ap.Mesh({"x": 4}, device=device)
    return (
        ap.jit(lambda x: (x @ x.T).sum(), mesh, [ap.ManualPartition({"x": 0}, axis="x")])
        .lower(jnp.ones((256, 256)))
        .estimate
    )


def test_the_kept_intervals_are_those_of_the_experiments():
    assert json.loads(intervals.FILE.read_text()) == intervals.figures()


def test_nine_of_ten_lie_between():
    low, high = intervals.between([float(n) for n in range(1, 101)])
    assert sum(low <= n <= high for n in range(1, 101)) == 90


@pytest.mark.parametrize(("device", "compiler"), [("h100", "xla_gpu"), ("gb200", "xla_gpu"), ("tpu_v3", "xla_tpu")])
def test_an_estimate_states_its_interval(device, compiler):
    found, kept = estimate_on(device), intervals.figures()[compiler]
    assert found.interval.step_s == (found.step_s * kept["step"][0], found.step_s * kept["step"][1])
    assert found.interval.peak_bytes == (found.peak_bytes * kept["peak"][0], found.peak_bytes * kept["peak"][1])
    assert f"on 9 of 10 of {kept['plans']} plans, by {kept['by']}" in str(found)


def test_a_device_in_a_file_adds_its_residuals(tmp_path):
    path = str(tmp_path / "mine.json")
    write_device(path, "mine", "cpu_host", {}, None, "test", {"stream": 0.1, "all_reduce": 0.25})
    found = estimate_on(path).interval
    assert found.peak_bytes is None
    assert found.step_s == pytest.approx((estimate_on(path).step_s / 1.25, 1.25 * estimate_on(path).step_s))
    assert f"on 9 of 10 of {path}'s measurements" in str(found)


def test_nothing_is_stated_where_nothing_is_kept():
    assert interval("cpu_host", 1.0, 1.0) is None
    assert estimate_on("cpu_host").interval is None
