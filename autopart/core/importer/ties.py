"""Which output is which argument's next value, and whether that can be.

    %arg0 {tf.aliasing_output = 1 : i32}      output 1 is the next value of argument 0:  {1: 0}

A tie needs an output and an argument that exist, of one type, each in no other tie.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from autopart.base.errors import ProgramError
from autopart.core.op import TensorType

ALIASING = "tf.aliasing_output"
_INTEGER = re.compile(r"(-?\d{1,9}) : \w+")


def aliases(attributes: Sequence[Mapping[str, str]]) -> list[tuple[int, int]]:
    """(output, argument) of each `tf.aliasing_output`; raises `ProgramError` where one is no number."""
    found = []
    for argument, row in enumerate(attributes):
        text = row.get(ALIASING)
        if text is None:
            continue
        number = _INTEGER.fullmatch(text)
        if number is None:
            raise ProgramError(
                f"{ALIASING} of argument {argument} is {text[:80]}", why="it must be the number of an output"
            )
        found.append((int(number[1]), argument))
    return found


def checked_ties(
    pairs: Iterable[tuple[int, int]], arguments: Sequence[TensorType], outputs: Sequence[TensorType]
) -> dict[int, int]:
    """The pairs (output, argument) as a dict; raises `ProgramError` where a tie cannot be."""
    ties: dict[int, int] = {}
    tied: set[int] = set()
    for output, argument in pairs:
        _check_position("output", output, len(outputs))
        _check_position("argument", argument, len(arguments))
        if output in ties or argument in tied:
            twice = f"output {output}" if output in ties else f"argument {argument}"
            raise ProgramError(f"{twice} is tied twice", why="an output is the next value of one argument at most")
        if outputs[output] != arguments[argument]:
            raise ProgramError(
                f"output {output} cannot be the next value of argument {argument}",
                why=f"the output is {outputs[output]}, the argument {arguments[argument]}",
                hint="ties={} ties nothing",
            )
        ties[output] = argument
        tied.add(argument)
    return ties


def _check_position(what: str, position: object, count: int) -> None:
    if isinstance(position, bool) or not isinstance(position, int) or not 0 <= position < count:
        raise ProgramError(
            f"ties name {what} {position!r}", why=f"the program has {count} {what}s, numbered from 0 to {count - 1}"
        )
