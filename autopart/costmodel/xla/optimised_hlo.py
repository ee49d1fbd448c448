"""What an optimised HLO module runs: its instructions, each with how often, and the cycles that the compiler puts down.

    ENTRY %main                          %a   once
      %a = fusion(...), calls=%f
      %w = while(...), body=%body        %b   5 times: the loop's known trip count
        %b = all-reduce(%x), ...

`OptimisedHlo(text).ran()` lists them: bodies of loops, the costliest branch of each conditional, what calls start. The
inside of a fusion is no instruction of its own; `OptimisedHlo.inside` has it. Only XLA:TPU writes cycles, and none for
kernels that come with the program, of Pallas or of a ragged product: `OptimisedHlo.given_kernels` has what those do.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*?) ([\w\-]+)\(")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_GIVEN = 'custom_call_target="tpu_custom_call"'
_WORK = re.compile(r'"cost_estimate":\{"flops":"(\d+)",.*?"bytes_accessed":"(\d+)"')
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_BOUND = re.compile(r"= s32\[\]\S* constant\((\d+)\)")
_CALLED = re.compile(r"(condition|body|calls|to_apply)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_LAYOUT = re.compile(r"\{[^}]*\}")
_COMMENT = re.compile(r"/\*.*?\*/")
_ARRAY = re.compile(r"([a-z]+\d*\w*)\[([\d,]*)\]")
_BITS = re.compile(r"\d+")
_BYTES = {"pred": 1.0, "c64": 8.0, "c128": 16.0}


class HloArray(NamedTuple):
    """One array of a type: its element type, as HLO names it, and its sizes."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """How many it has."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> float:
        """Bytes without padding; none of what has no elements of so many bits, as a token."""
        bits = _BITS.search(self.dtype)
        return self.elements * _BYTES.get(self.dtype, int(bits.group()) / 8 if bits else 0.0)


def arrays_in(type_: str) -> list[HloArray]:
    """The arrays of a type's text; layouts are left out.

    >>> arrays_in("(f32[8,4]{1,0:T(8,128)}, pred[3])")
    [HloArray(dtype='f32', shape=(8, 4)), HloArray(dtype='pred', shape=(3,))]
    """
    found = _ARRAY.findall(_LAYOUT.sub("", type_))
    return [HloArray(dtype, tuple(int(n) for n in sizes.split(",") if n)) for dtype, sizes in found]


@dataclass(frozen=True)
class Instruction:
    """One instruction of a computation, as its line says.

    name, type, kind    `%name = type kind(...)`; the type as text, with layouts
    computation         where it stands
    called              "condition", "body", "calls", "to_apply" -> the computation
    """

    name: str
    type: str
    kind: str
    line: str = field(repr=False)
    computation: str
    called: dict[str, str]

    @property
    def cycles(self) -> int:
        """Cycles that the compiler estimates for this line; 0 where it notes none."""
        return sum(map(int, _CYCLES.findall(self.line)))

    @property
    def operands(self) -> list[str]:
        """Names of what it reads."""
        listed = self.line.split(f" {self.kind}(", 1)[1].split(")", 1)[0]
        return [word.strip().lstrip("%") for word in _COMMENT.sub("", listed).split(",")]


class GivenKernel(NamedTuple):
    """A kernel of which the compiler estimates no cycles: `flop` and `bytes` each time, of `times` in a step.

    They are what whoever wrote it states, zero if that is nothing.
    """

    flop: float
    bytes: float
    times: int


class OptimisedHlo:
    """An optimised module, from its text.

    >>> text = 'ENTRY %main (x: f32[8]) -> f32[8] {\\n  %a = f32[8] fusion(x), "estimated_cycles":"7"\\n}'
    >>> [(ran.kind, times) for ran, times in OptimisedHlo(text).ran()], OptimisedHlo(text).cycles
    ([('fusion', 1)], 7.0)
    """

    def __init__(self, text: str):
        self.computations: dict[str, list[Instruction]] = {}
        """Instructions of each computation by name, in order."""
        self._lines, self.entry = _computations(text)
        self._cycles: dict[str, float] = {}
        for name, lines in self._lines.items():
            found = ((line, _INSTRUCTION.match(line)) for line in lines)
            self.computations[name] = [
                Instruction(*match.groups(), line, name, dict(_CALLED.findall(line)))  # pyright: ignore[reportCallIssue]
                for line, match in found
                if match
            ]

    @property
    def cycles(self) -> float:
        """The sum of estimated cycles, loops by trip count, the costliest branch of each case."""
        return self._cycles_of(self.entry)

    @property
    def given_kernels(self) -> Iterator[GivenKernel]:
        """Kernels that come with the program and that run, in order."""
        for instruction, times in self.ran():
            if instruction.kind == "custom-call" and _GIVEN in instruction.line:
                work = _WORK.search(instruction.line)
                yield GivenKernel(float(work[1]), float(work[2]), times) if work else GivenKernel(0.0, 0.0, times)

    def inside(self, instruction: Instruction) -> list[Instruction]:
        """The instructions that a fusion holds; none of another kind's."""
        return self.computations.get(instruction.called.get("calls", ""), []) if instruction.kind == "fusion" else []

    def ran(self) -> Iterator[tuple[Instruction, int]]:
        """Each instruction that runs, with how often."""
        yield from self._ran(self.entry, 1)

    @functools.cached_property
    def types(self) -> dict[tuple[str, str], str]:
        """(computation, name) -> the type of that value, as text."""
        return {(i.computation, i.name): i.type for found in self.computations.values() for i in found}

    def operand_types(self, instruction: Instruction) -> list[str]:
        """The types of what an instruction reads, as text."""
        found = (self.types.get((instruction.computation, name)) for name in instruction.operands)
        return [type_ for type_ in found if type_ is not None]

    def _ran(self, computation: str, times: int) -> Iterator[tuple[Instruction, int]]:
        for instruction in self.computations.get(computation, ()):
            yield instruction, times
            for called, trips in self.calls(instruction):
                yield from self._ran(called, times * trips)

    def calls(self, instruction: Instruction) -> list[tuple[str, int]]:
        """The computations that an instruction runs, and how often each."""
        called = instruction.called
        if instruction.kind == "while":
            trips = _trip_count(instruction.line, self._lines.get(called["condition"], []))
            return [(called["body"], trips), (called["condition"], trips + 1)]
        if instruction.kind == "conditional":
            branches = _BRANCHES.search(instruction.line)
            names = branches.group(1).replace("%", "").split(", ") if branches else []
            return [(max(names, key=self._cycles_of), 1)] if names else []
        if instruction.kind in ("call", "async-start"):
            return [(called.get("to_apply") or called.get("calls", ""), 1)]
        return []

    def _cycles_of(self, computation: str) -> float:
        if computation not in self._cycles:
            self._cycles[computation] = 0.0
            for instruction in self.computations.get(computation, ()):
                called = sum(trips * self._cycles_of(name) for name, trips in self.calls(instruction))
                self._cycles[computation] += instruction.cycles + called
        return self._cycles[computation]


def estimated_cycles(hlo_text: str) -> float:
    """The sum of `estimated_cycles` of an optimised HLO module, loops by trip count, the costliest branch of each case.

    >>> estimated_cycles('ENTRY %main (x: f32[8]) -> f32[8] {\\n  %a = f32[8] fusion(x), "estimated_cycles":"7"\\n}')
    7.0
    """
    return OptimisedHlo(hlo_text).cycles


def _trip_count(line: str, condition: list[str]) -> int:
    """How often a loop runs: what XLA notes, else the bound its condition compares a counter from 0 with, else 1."""
    if noted := _TRIPS.search(line):
        return int(noted.group(1))
    bounds = [int(found.group(1)) for text in condition if (found := _BOUND.search(text))]
    counts = any("direction=LT" in text for text in condition)
    return max(bounds) if counts and len(bounds) == 1 else 1


def _computations(hlo_text: str) -> tuple[dict[str, list[str]], str]:
    """Lines of each computation by name, and the name of the entry."""
    blocks: dict[str, list[str]] = {}
    name = entry = ""
    for line in hlo_text.splitlines():
        if line.endswith("{") and not line.startswith(" ") and "->" in line:
            name = line.removeprefix("ENTRY ").split(" ")[0].lstrip("%")
            blocks[name] = []
            entry = name if line.startswith("ENTRY") else entry
        elif name:
            blocks[name].append(line)
    return blocks, entry
