"""Is what was measured written, loaded as a device, and fitted by what the cost model has?"""

import json
import math

import jax
import pytest

import autopart as ap
from autopart.api.measured.calibration import _fit
from autopart.costmodel import collective_seconds, device, mesh_links
from autopart.costmodel.hardware.device_file import write_device
from autopart.costmodel.hardware.fabric import CollectiveCurve, DeviceError, Switch


def test_a_short_calibration_gives_a_device_that_prices_programs(tmp_path):
    path = str(tmp_path / "mine.json")
    found = ap.calibrate(path, seconds=0)
    assert {"stream", "tanh", "product", "all_gather", "all_reduce"} <= set(found.residuals)
    assert path in str(found)
    mesh = ap.Mesh({"x": 8}, device=path)
    low = ap.jit(lambda x: (x @ x.T).sum(), mesh, [ap.ManualPartition({"x": 0}, axis="x")]).lower(
        jax.ShapeDtypeStruct((64, 64), "float32")
    )
    assert 0 < low.estimate.step_s < 1
    assert low.estimate.device == path


def test_a_device_in_a_file_is_like_another_but_for_what_was_measured(tmp_path):
    curves = {"all_reduce": CollectiveCurve(1e-5, 1e-6, 1e11, local_bytes_per_s=2e11)}
    path = str(tmp_path / "mine.json")
    write_device(path, "mine", "h100", {"hbm_bytes_per_s": 3e12}, Switch(8, 1e11, 1e-5, curves=curves), "test", {})
    mine, h100 = device(path), device("h100")
    assert (mine.hbm_bytes_per_s, mine.hbm_efficiency, mine.compiler) == (3e12, 1.0, "xla_gpu")
    assert (mine.hbm_bytes, mine.network) == (h100.hbm_bytes, h100.network)
    links = mesh_links(ap.Mesh({"x": 8}, device=path))
    expected = 1e-5 + 14 * 1e-6 + 2 * 7 / 8 * 8e6 / 1e11 + 1e6 / 2e11
    assert collective_seconds(links, "all_reduce", 8e6, "x") == pytest.approx(expected)


def test_a_file_with_a_field_that_is_not_measured_is_refused(tmp_path):
    path = tmp_path / "other.json"
    write_device(path, "mine", "h100", {"hbm_bytes_per_s": 3e12}, None, "test", {})
    said = json.loads(path.read_text())
    path.write_text(json.dumps({**said, "measured": {"compiler": "xla_tpu"}}))
    with pytest.raises(DeviceError, match="'compiler' is not measured"):
        device(str(path))


def test_fits_find_the_terms_and_none_below_zero():
    rows = [(f"stream|{n}", n, 2e-6 * 4 + 3e-9 * n) for n in (1e3, 1e5, 1e7)]
    (launch_s, byte_s), points = _fit([[4, n] for _, n, _ in rows], rows)
    assert (launch_s, byte_s) == (pytest.approx(2e-6), pytest.approx(3e-9))
    assert all(math.isclose(p.fitted_s, p.measured_s) for p in points)
    falling = [(f"stream|{n}", n, 1e-3 / n) for n in (1.0, 2.0, 4.0)]
    factors, _ = _fit([[1, n] for _, n, _ in falling], falling)
    assert min(factors) >= 0
