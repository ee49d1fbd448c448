"""Writes the pages that the code knows best, errors.md and ops.md: `make docs`, or python docs/reference.py FOLDER.

## TileError                                  each class of error, with its docstring,
ap.jit(double, MESH, [...]).lower(...)        what raises it,
TileError: cannot tile x: ...                 and what it then says
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import pkgutil
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"  # before jax starts: what a program is lowered for is part of some texts

import autopart as ap
from autopart.base.errors import PartitionError
from autopart.core.ops.ops_table import ops_table

SETTING = """
import jax
import autopart as ap
from autopart.core.table.actions import action_of
from autopart.costmodel import Device
from autopart.pairwise import PairwiseProblem
from autopart.search.space import register_decision_kind
from autopart.spmd.redistribution.types import DistributedType

MESH = ap.Mesh({"batch": 8}, device="tpu_v3")
BP = ap.ManualPartition({"x": 0}, axis="batch", name="BP")


def double(x):
    return 2 * x


def gram(x):
    return x @ x.T


def floats(*shape):
    return jax.ShapeDtypeStruct(shape, "float32")
"""
"""What the examples share."""

EXAMPLES = (
    'ap.jit(double, {"batch": 8})',
    'ap.Mesh({"batch": 0})',
    'ap.jit(double, ap.Mesh({"batch": 8}), [ap.ManualPartition({"x": 0}, axis="bach")]).lower(floats(16))',
    'ap.jit(double, MESH, [ap.ManualPartition({"y": 0}, axis="batch")]).lower(floats(16))',
    'ap.costmodel.device("tpu_v33")',
    "ap.jit(double, MESH, [BP]).lower(floats(10, 4))",
    'open("broken.mlir", "w").write("func.func @main(")\nap.load("broken.mlir")',
    "ap.Limits(max_ops=0)",
    "ap.jit(double, MESH).lower()",
    "plan = ap.jit(double, MESH, [BP]).lower(floats(16)).plan\n"
    'ap.jit(double, ap.Mesh({"batch": 4}), plan).lower(floats(16))',
    "ap.jit(gram, MESH, [BP], strict=True).lower(floats(16, 4))",
    'Device("my_chip", {"bf16": 500e12}, hbm_bytes=-1, hbm_bytes_per_s=2e12, source="datasheet")',
    'register_decision_kind("keep")(object)',
    "action_of(['tile', 'params/w'], int)",
    'ap.register_custom_call("Sharding")(lambda spec: [])',
    "ap.Budget(evaluations=-1)",
    'ap.register_optimizer("mcts")(ap.MCTS)',
    'auto = ap.AutomaticPartition("batch", objective=lambda cost: float("nan"), cache=False)\n'
    "ap.jit(double, MESH, [auto]).lower(floats(16))",
    "ap.Processes(0)",
    'DistributedType.parse("[5{x}12]", {"x": 4})',
    "PairwiseProblem.of(costs=[[1, 2]], usages=[[3, -4]])",
)
"""Lines that raise; the class that each raises decides where it stands."""


def subclasses(base: type) -> set[type]:
    """All classes below `base`, however deep."""
    return {base}.union(*map(subclasses, base.__subclasses__()))


def classes() -> list[type]:
    """Every class of error of the package that a user's input can cause, by name."""
    for module in pkgutil.walk_packages(ap.__path__, "autopart."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    return sorted(subclasses(PartitionError) - {PartitionError}, key=lambda c: (c.__name__, c.__module__))


def raised(code: str) -> PartitionError:
    """The error that an example raises, run in an empty folder."""
    space: dict[str, object] = {"__name__": "train"}
    exec(compile(SETTING, "train.py", "exec"), space)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        try:
            exec(compile(code, "train.py", "exec"), space)
        except PartitionError as error:
            return error
    raise AssertionError(f"nothing is raised by {code}")


def qualified(cls: type) -> str:
    """How a user names the class: `ap.TileError`, or its module and name."""
    return f"ap.{cls.__name__}" if getattr(ap, cls.__name__, None) is cls else f"{cls.__module__}.{cls.__name__}"


def errors_page() -> str:
    """errors.md."""
    examples: defaultdict[type, list[str]] = defaultdict(list)
    for code in EXAMPLES:
        error = raised(code)
        examples[type(error)].append(f"```text\n{code}\n\n{type(error).__name__}: {error}\n```\n")
    page = [
        "# Errors\n",
        "Written by `make docs`. Every error that your input can cause is an `ap.PartitionError`, which is a",
        "`ValueError`. Its text says what is wrong and, where it can, *by* whom (the tactic), *why* with the numbers,",
        "and what to *try* instead; the parts are its attributes `what`, `by`, `why` and `hint`. The examples share\n",
        f"```text\n{SETTING.strip()}\n```\n",
    ]
    for cls in classes():
        page += [f"## `{qualified(cls)}`\n", f"{inspect.getdoc(cls)}\n", *examples[cls]]
    return "\n".join(page)


def ops_page() -> str:
    """ops.md."""
    head = "Written by `make docs`; the same as `python -m autopart ops`. [Extending](extending.md#an-op) adds one."
    return f"# Ops\n\n{head}\n\n```text\n{ops_table().rstrip()}\n```\n"


def main(folder: str) -> None:
    """Writes both pages."""
    Path(folder, "errors.md").write_text(errors_page())
    Path(folder, "ops.md").write_text(ops_page())


if __name__ == "__main__":
    main(sys.argv[1])
