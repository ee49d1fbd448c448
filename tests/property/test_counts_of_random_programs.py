"""Are the collectives that metadata counts, by kind and by mesh axes, those of the emitted module?

pytest tests/property/test_counts_of_random_programs.py -m ''     more programs, and other devices
"""

from __future__ import annotations

import itertools
import re
import warnings
from collections import Counter

import numpy as np
import pytest

import autopart as ap
from tests.prompt import slow
from tests.property.random_programs import RandomProgram
from tests.property.random_schedules import MESHES, RandomActions

KINDS = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "all_to_all": "all_to_all", "collective_permute": "all_permute",
}  # fmt: skip
OP = re.compile(rf"stablehlo\.({'|'.join(KINDS)})\"?\(.*?(?:replica_groups|source_target_pairs) = dense<(.*?)>", re.S)


def axes_of(groups: str, mesh: dict[str, int]) -> str:
    """The mesh axes along which the devices of a group differ."""
    rows = np.array(eval(groups))
    places = np.stack(np.unravel_index(np.atleast_2d(rows), tuple(mesh.values())), -1)
    differs = (places != places[:, :1]).any(axis=(0, 1))
    return ",".join(name for name, one in zip(mesh, differs, strict=True) if one)


def emitted(low: ap.Lowered) -> tuple[Counter, Counter]:
    """(kind -> count, (kind, axes) -> count) of the module, the second without permutes."""
    found = [(KINDS[kind], groups) for kind, groups in OP.findall(low.as_text("stablehlo"))]
    by_axes = Counter((kind, axes_of(g, low.mesh.shape)) for kind, g in found if kind != "all_permute")
    return Counter(kind for kind, _ in found), by_axes


@pytest.mark.parametrize(
    ("device", "first"), [("tpu_v5e", 0), ("tpu_v3", 40), *(slow(d, n) for d, n in itertools.product(
        ("tpu_v3", "tpu_v5e", "tpu_v6e", "h100"), range(80, 400, 40)))]
)  # fmt: skip
def test_what_is_counted_is_what_is_emitted(device, first):
    compared = 0
    for seed in range(first, first + 40):
        program, mesh = RandomProgram(seed), dict(MESHES[seed % len(MESHES)])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ap.SearchWarning)
            run = ap.jit(
                lambda x, run=program: {run.name: run(x[run.name])}, ap.Mesh(mesh, device), [RandomActions(program)]
            )
            low = run.lower({program.name: program.inputs()})
        if "stablehlo.while" in low.as_text("stablehlo"):
            continue  # an op of the text is counted by its trips
        report, (kinds, by_axes) = low.metadata.tactics[-1], emitted(low)
        counted = Counter({kind: n for kind, n in report.collectives.items() if n})
        assert counted == kinds, seed
        assert counted == Counter({k: t.count for k, t in low.estimate.collectives.items() if t.count}), seed
        table = report.collectives_by_axis.items()
        rows = {(kind, ",".join(sorted(axes.split(",")))): n for axes, of in table for kind, n in of.items()}
        moved = Counter({(kind, axes): n for (kind, axes), n in rows.items() if kind != "all_permute" and n})
        assert moved == by_axes, seed
        compared += sum(kinds.values())
    assert compared > 20
