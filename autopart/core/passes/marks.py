"""What a pass found out about single ops, as attributes that their rules read.

marked(program, {12: {"positions": ((0, 1),)}})        op 12 has a spec of its own; ops marked alike share one
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from autopart.core.program import Program


def marked(program: Program, marks: Mapping[int, Mapping[str, Any]]) -> Program:
    """The program with attributes added to some ops, by op number; ops that were equal and still are share a spec."""
    if not marks:
        return program
    specs, op_spec, added = list(program.specs), program.op_spec.copy(), {}
    for op, attributes in marks.items():
        key = int(op_spec[op]), tuple(attributes.items())
        if key not in added:
            added[key] = len(specs)
            specs.append(replace(specs[key[0]], attributes={**specs[key[0]].attributes, **attributes}))
        op_spec[op] = added[key]
    source = None if program.source is None else program.source.with_copies([old for old, _ in added])
    return replace(program, specs=specs, op_spec=op_spec, source=source)
