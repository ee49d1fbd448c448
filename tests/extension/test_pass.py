"""Can a package outside autopart add a pass, and does it run, by its name, before the schedule?"""

from __future__ import annotations

import importlib
import sys

import pytest
from test_extension import PROGRAM

import autopart as ap
from autopart.core.passes import PASSES


@pytest.fixture
def tidy():
    """Acme's pass, for the length of a test."""
    with PASSES.restored():
        yield importlib.import_module("acme.tidy")
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme"]:
        del sys.modules[name]
    assert "acme_tidy" not in PASSES


def test_the_pass_ran_by_its_name(tidy, tmp_path):
    path = tmp_path / "program.mlir"
    path.write_text(PROGRAM)
    found = ap.jit(ap.load(path), ap.Mesh({"a": 4}), passes=["acme_tidy"]).lower()
    assert [report.name for report in found.passes][-1] == "Tidy()"
    assert tidy.SEEN == ["acme_attention"]


def test_a_name_of_a_pass_is_taken_once(tidy):
    with pytest.raises(ap.RegistryError, match=r'(?s)pass "acme_tidy" is registered already.*acme\.tidy\.Tidy'):
        PASSES.register("acme_tidy")(tidy.Tidy)
