"""Which outputs are the next values of arguments: parameters, optimizer state, a cache.

    step(params, x) -> (params, loss)       donated      tied: output 0/w has the layout of params/w, and its memory
                                            not donated  output 0/w is called as params/w is, and has its type

What is donated is tied, and says so. A step whose caller keeps the old state donates nothing, and has a state all the
same: a tree that comes back. So an argument that is a tree is state if every leaf of it comes back under the same path
with the same type, in one output. Layouts know ties alone; searches ask here, to tell state from data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from autopart.core.program import Program

_Leaves = dict[str, int]
"""Positions by the path below an argument or an output."""


def next_values(program: Program) -> Mapping[int, int]:
    """Output position -> position of the argument whose next value it is; ties, where the program has any."""
    return program.ties or dict(_by_paths(program))


def _by_paths(program: Program) -> Iterator[tuple[int, int]]:
    taken: set[int] = set()
    outputs = [*_trees(program.output_names).values(), {n: i for i, n in enumerate(program.output_names)}]
    arguments = [leaves for leaves in _trees(program.argument_names).values() if "" not in leaves]
    matches: list[tuple[int, int]] = []
    for leaves in arguments:
        for tree in outputs:
            if _comes_back(program, leaves, tree) and taken.isdisjoint(tree[path] for path in leaves):
                matches += [(tree[path], argument) for path, argument in leaves.items()]
                taken.update(tree[path] for path in leaves)
                break
    is_data = len(matches) < len(program.arguments)
    yield from matches if is_data else ()


def _trees(names: list[str]) -> dict[str, _Leaves]:
    """First part of a name -> its leaves; a name of one part has the path "" below it."""
    trees: dict[str, _Leaves] = {}
    for position, name in enumerate(names):
        head, _, path = name.partition("/")
        trees.setdefault(head, {})[path] = position
    return trees


def _comes_back(program: Program, leaves: _Leaves, tree: _Leaves) -> bool:
    def type_of(value: int) -> object:
        return program.type_of(value)

    return leaves.keys() <= tree.keys() and all(
        type_of(program.outputs[tree[path]]) == type_of(program.arguments[argument])
        for path, argument in leaves.items()
    )
