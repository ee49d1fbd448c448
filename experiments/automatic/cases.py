"""The programs that are searched on, each with the schedules people write for it.

Case("T32", program on {batch:16, model:2}, {"BP": [...], "BP+MP": [...], ...})

Real workloads are StableHLO files; an output is tied to the argument whose place and type it has, as a training step
that returns (params, opt_state, ...) means it.
"""

from __future__ import annotations

import dataclasses
import functools
import gzip
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import autopart as ap
from autopart.core.program import Program
from experiments.models import gns, it32, t32, unet
from experiments.models.tactics import (
    BP,
    GNS_ES,
    IT32_BP,
    IT32_MP,
    IT32_MQ,
    MP,
    UNET_MP,
    UNET_Z2,
    UNET_Z3,
    Z2,
    Z3,
)

MESH = ap.Mesh({"batch": 16, "model": 2}, device="tpu_v3")
WORKLOADS = Path(__file__).parents[2] / "tests" / "data" / "workloads"


@dataclass(frozen=True)
class Case:
    """A program and its manual schedules; `paper_gain` is Table 3's best automatic schedule over the manual one."""

    name: str
    load: Callable[[], Program]
    schedules: dict[str, list[ap.Tactic]]
    paper_gain: tuple[str, float] | None = None

    @functools.cached_property
    def program(self) -> Program:
        """The unpartitioned program."""
        return self.load()


def traced(model: Any, config: Any, donated: tuple[int, ...] = (0, 1)) -> Program:
    """The program of one of the paper's models."""
    step = ap.jit(model.step(config), MESH, [], donate_argnums=donated)
    return step.lower(*model.abstract_args(config)).traced.program


def workload(name: str, folder: Path = WORKLOADS) -> Program:
    """The program of a StableHLO file."""
    return workload_file(name, folder).traced.program


def workload_file(name: str, folder: Path = WORKLOADS) -> ap.LoadedProgram:
    """A StableHLO file with its arguments named and its state tied."""
    data = json.loads(gzip.decompress((folder / f"{name}.args.json.gz").read_bytes()))
    names = ["/".join(re.findall(r"\w+", text)) for text in data["arg_names"]]
    path = folder / f"{name}.mlir.gz"
    plain = ap.load(path, argument_names=names).traced
    pairs = zip(plain.out_avals, plain.in_avals, names, strict=False)
    state = [(o.shape, o.dtype) == (i.shape, i.dtype) and not n.startswith("batch") for o, i, n in pairs]
    tied = state.index(False) if False in state else len(state)
    return ap.load(path, argument_names=names, ties={i: i for i in range(tied)})


def training(batch: dict[str, Any], state: tuple[str, ...] = ("params", "opt_state")) -> dict[str, list[ap.Tactic]]:
    """BP, BP+Z2 and BP+Z3 of a training step."""
    bp = ap.ManualPartition(batch, axis="batch", name="BP")
    first = ap.FIRST_DIVISIBLE_DIM
    z2 = ap.ManualPartition({"params": ap.REPLICATED, "opt_state": first}, axis="batch", name="Z2")
    z3 = ap.ManualPartition(dict.fromkeys(state, first), axis="batch", name="Z3")
    return {"BP": [bp], "BP+Z2": [bp, z2], "BP+Z3": [bp, z3]}


def with_matrices(schedules: dict[str, list[ap.Tactic]], mp: ap.Tactic) -> dict[str, list[ap.Tactic]]:
    """The schedules, and each again with `mp` after BP."""
    return schedules | {name.replace("BP", "BP+MP"): [s[0], mp, *s[1:]] for name, s in schedules.items()} | {"MP": [mp]}


BERT_MP = ap.ManualPartition(
    {"params": {f"*/{name}/kernel": 1 for name in ("query", "key", "value", "intermediate/dense")}}, "model", "MP"
)

T32_SCHEDULES = {"BP": [BP], "BP+MP": [BP, MP], "BP+MP+Z2": [BP, MP, Z2], "BP+MP+Z3": [BP, MP, Z3], "MP": [MP]}
UNET_SCHEDULES = {
    "BP": [BP], "BP+MP": [BP, UNET_MP], "BP+Z2": [BP, UNET_Z2], "BP+Z3": [BP, UNET_Z3], "MP": [UNET_MP],
}  # fmt: skip
IT32_SCHEDULES = {
    "BP": [IT32_BP], "BP+MP": [IT32_BP, IT32_MP], "BP+MP+MQ": [IT32_BP, IT32_MP, IT32_MQ], "MP": [IT32_MP],
}  # fmt: skip


def gns_case(edges: int) -> Case:
    """GNS on a graph of 2,048 nodes."""
    config = dataclasses.replace(gns.Config(), edges=edges)
    return Case(f"GNS {edges:,}", lambda: traced(gns, config), {"ES": [GNS_ES]}, ("ES", 294.13 / 118.12))


CASES = (
    Case("T32", lambda: traced(t32, t32.Config()), T32_SCHEDULES),
    Case("UNet", lambda: traced(unet, unet.Config()), UNET_SCHEDULES, ("BP", 25.80 / 15.74)),
    *map(gns_case, (8192, 16384, 65536)),
    Case("IT32", lambda: traced(it32, it32.Config(), (1,)), IT32_SCHEDULES),
    Case("resnet50", lambda: workload("hf_resnet50_train"), training({"batch": 0})),
    Case("gnn_forces", lambda: workload("jaxmd_gnn_forces_train"), training({"batch": 0})),
    Case("bert_large", lambda: workload("hf_bert_large_mlm"), with_matrices(training({"batch": 0}), BERT_MP)),
)
