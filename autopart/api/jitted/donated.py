"""An array that is given to a call twice, once to be donated: XLA ends Python over it where several devices are to run.

step(params, params)              both donated          CallError: b is the array that is donated as a
step(params, ema=params)          one of them donated   the same
step(placed, x)                   two arrays            placed was made of x and has its memory on one device: copied

Results are written where a donated array is, so nothing else may be there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import jax

from autopart.api.tracing.trace import LoadedProgram, Traced
from autopart.base.errors import CallError
from autopart.core.program import Program


def check_donated(program: Program, leaves: Sequence[Any]) -> None:
    """Raises `CallError` where an array is donated and given once more, among the arguments that the program reads."""
    names, seen = program.argument_names, dict[int, int]()
    for position in sorted(program.passed_arguments, key=lambda position: position not in program.donated):
        if isinstance(leaves[position], jax.Array):
            first = seen.setdefault(id(leaves[position]), position)
            if first != position and first in program.donated:
                raise CallError(
                    f"{names[position]} is the array that is donated as {names[first]}",
                    why="results are written where a donated array is, so a call can be given it once only",
                    hint="a copy for one of them: jnp.copy(x), or jax.tree.map(jnp.copy, state)",
                )


def apart(program: Program, placed: Sequence[Any]) -> list[Any]:
    """The arguments, placed on the devices, each donated one with a memory of its own."""
    found, taken = list(placed), set[Hashable]()
    for position in _donated_last(program):
        memory = set(_memory(placed[position]))
        if position in program.donated and not memory.isdisjoint(taken):
            found[position] = jax.device_put(placed[position], placed[position].sharding, may_alias=False)
        taken |= memory
    return found


def _donated_last(program: Program) -> list[int]:
    """Arguments that the program is passed; none where it donates none of them."""
    passed = sorted(program.passed_arguments, key=lambda position: position in program.donated)
    return passed if passed and passed[-1] in program.donated else []


def _memory(array: jax.Array) -> Iterator[Hashable]:
    """Where an array is on each device."""
    for shard in array.addressable_shards if array.size else ():
        with contextlib.suppress(jax.errors.JaxRuntimeError):  # a backend that does not say
            yield shard.device, shard.data.unsafe_buffer_pointer()


def donated_leaves(fun: Any, numbers: Sequence[int], names: Sequence[str], args: tuple, kwargs: Mapping) -> list[Any]:
    """What a call of `fun` donates, by the numbers and names of its donated parameters."""
    if isinstance(fun, LoadedProgram):
        return leaves_donated(fun.traced, args, kwargs)
    given = [args[n] for n in numbers if -len(args) <= n < len(args)]
    return jax.tree.leaves([given, [kwargs[name] for name in names if name in kwargs]])


def leaves_donated(traced: Traced, args: tuple, kwargs: Mapping) -> list[Any]:
    """What a call of a program donates."""
    leaves = jax.tree.leaves((args, kwargs))
    return [leaf for n, leaf in enumerate(leaves, len(traced.closed_over)) if n in traced.program.donated]
