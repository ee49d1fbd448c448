"""What the TPU compiler made of each pair: every kernel with its members, layouts, memory spaces and cycles.

    python -m experiments.simulator_accuracy.labels "bert BP v3:4x4"      prints what is kept of a pair

        %f.7 () -> {
          %0 = f32[512,768]{1,0:T(8,128)} convolution() #op 31
          %1 = f32[512,768]{1,0:T(8,128)} add() #op 32
        ENTRY %main () -> {
          %fusion.7 = f32[512,768]{1,0:T(8,128)S(1)} fusion(%copy.2, %p.3), calls=%f.7, "estimated_cycles":"1893"

A kept text is the optimised module, in order, less what is not read: metadata but the number of the op that an
instruction was made of (`export(local, numbered=True)`), backend configurations but cycles and trip counts, constants,
and how the members of a kernel are wired. `OptimisedHlo` reads it. Texts stand compressed in `labels/`, a file a pair.
"""

from __future__ import annotations

import lzma
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from autopart.costmodel.xla.optimised_hlo import OptimisedHlo

FOLDER = Path(__file__).with_name("labels")

_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*?) ([\w\-]+)\((.*?)\)(.*)$")
_CALLED = re.compile(r"calls=%?([\w.\-]+)")
_NUMBER = re.compile(r"[\"/;](op|value) (\d+)")
_KEPT = re.compile(
    r"(?:condition|body|calls|to_apply|dimensions|dim_labels|window|replica_groups|custom_call_target|direction)="
    r"(?:\{[^{}]*\}|\{\{.*?\}\}|\"[^\"]*\"|[^,\s]+)|branch_computations=\{[^}]*\}|feature_group_count=\d+"
    r'|"estimated_cycles":"\d+"|"known_trip_count":\{"n":"\d+"\}|"cost_estimate":\{"flops":"\d+",.*?"bytes_accessed":"\d+"'
)
_COMMENT = re.compile(r"/\*.*?\*/")


def stripped(text: str) -> str:
    """The text of an optimised module less what is not read of it."""
    return "\n".join(_stripped(text))


def _stripped(text: str) -> Iterator[str]:
    fused, of_kernel, members = set(_CALLED.findall(text)), False, 0
    for line in text.splitlines():
        if line.endswith("{") and not line.startswith(" ") and "->" in line:
            name = line.removeprefix("ENTRY ").split(" ")[0].lstrip("%")
            of_kernel, members = name in fused, 0
            yield f"{'ENTRY ' * line.startswith('ENTRY')}%{name} () -> {{"
        if not (match := _INSTRUCTION.match(line)):
            continue
        name, type_, kind, operands, rest = match.groups()
        made_of = "".join(" #{} {}".format(*found) for found in _NUMBER.findall(rest)[-1:])
        if not of_kernel:
            attributes = "".join(f", {found}" for found in _KEPT.findall(rest))
            operands = operands if kind == "constant" and operands.isdigit() else _COMMENT.sub("", operands)
            yield f"  %{name} = {type_} {kind}({operands}){attributes}{made_of}"
        elif kind not in ("parameter", "constant"):
            dims = "".join(f", {found}" for found in _KEPT.findall(rest) if found.startswith(("dim", "window")))
            yield f"  %{members} = {type_} {kind}(){dims}{made_of}"
            members += 1


def _file(name: str) -> Path:
    return FOLDER / f"{re.sub(r'[^A-Za-z0-9._]+', '-', name)}.hlo.xz"


def keep(name: str, text: str) -> None:
    """Keeps the text of a pair."""
    FOLDER.mkdir(exist_ok=True)
    _file(name).write_bytes(lzma.compress(stripped(text).encode(), preset=9 | lzma.PRESET_EXTREME))


def kept_text(name: str) -> str:
    """What is kept of a pair; empty where nothing is."""
    return lzma.decompress(_file(name).read_bytes()).decode() if _file(name).exists() else ""


def kept(name: str) -> OptimisedHlo | None:
    """What is kept of a pair, read; None where nothing is."""
    text = kept_text(name)
    return OptimisedHlo(text) if text else None


if __name__ == "__main__":
    print(kept_text(sys.argv[1]) or sys.exit(f"nothing is kept of {sys.argv[1]!r}"))
