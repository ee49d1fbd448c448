"""Do real programs import and lower, whole and with the batch tiled, and does every op have a rule?"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import autopart as ap
from autopart.core.ops.ops_table import coverage

FOLDER = Path(__file__).parents[1] / "data" / "workloads"
FILES = sorted(FOLDER.glob("*.mlir.gz"))
assert FILES, f"{FOLDER} holds no programs"


LONG = ("sd_unet_train", "hf_gpt2_multisteps_train", "hf_gpt2_xl_train", "hf_bart_large_beam", "brax_ppo_train")
"""Programs that take long."""


def case(path: Path):
    name = path.name.removesuffix(".mlir.gz")
    return pytest.param(path, id=name, marks=[pytest.mark.slow] if name in LONG else [])


@pytest.mark.parametrize("path", [case(path) for path in FILES])
def test_workload_lowers_whole_and_with_its_batch_tiled(path):
    arguments = json.loads(gzip.decompress(path.with_name(path.name.replace(".mlir.", ".args.json.")).read_bytes()))
    names = arguments["arg_names"]
    program = ap.load(path, argument_names=[f"a{i}" for i in range(len(names))])
    assert "100.00 %" in coverage(program.traced.program).splitlines()[0]
    batch = [i for i, name in enumerate(names) if name.startswith("batch")] or [len(names) - 1]
    tactic = ap.ManualPartition({f"a{i}": ap.FIRST_DIVISIBLE_DIM for i in batch}, axis="batch")
    whole = ap.jit(program, ap.Mesh({"batch": 2}), []).lower()
    assert not +whole.program.collectives()
    tiled = ap.jit(program, ap.Mesh({"batch": 2}), [tactic]).lower()
    for lowered in (whole, tiled):
        lowered.exported.operation.verify()
