"""Which outputs are the next values of donated arguments, by what is computed of what.

    step(ema, params, x) -> (params, ema)      both are trees of the same types
      params + update                          one equation behind params: output 0 is its next value
      0.99 * ema + 0.01 * params               two behind ema, three behind params: output 1 is that of ema

A donated argument goes with an output (an element of the returned tuple, or all of it) of its tree and types; where
there is none, leaf by leaf with outputs of its types. Among several they are paired by place, as in
`u, v = step(u, v)`, if each output is computed from its argument, or handed on from another (`return v, 2 * v - u`).
Else the nearest ones belong together, and what no few equations lead to is given out by place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from autopart.core.importer.jaxprs import Dataflow

HOPS = 6
"""Equations between an argument and its next value, at most: casts, an update, an average."""


def tie_updates(args_info: Any, out_info: Any, dataflow: Dataflow) -> dict[int, int]:
    """Output position -> position of the donated argument that it updates. Each output is looked at once."""
    outputs = list(out_info) if isinstance(out_info, (tuple, list)) and not hasattr(out_info, "_fields") else [out_info]
    out_types = [_type_of(leaf) for output in outputs for leaf in jax.tree.leaves(output)]
    trees: dict[Any, tuple[list[int], list[int]]] = {}
    first, widths = 0, dict[int, int]()
    for output in outputs:
        tree, types = _tree_of(output)
        trees.setdefault((tree, types), ([], []))[1].append(first)
        first += len(types)
    position, unmatched = 0, list[int]()
    for argument in [*args_info[0], *args_info[1].values()]:
        infos = jax.tree.leaves(argument)
        if infos and all(info.donated for info in infos):
            key = _tree_of(argument)
            if key in trees:
                trees[key][0].append(position)
                widths[position] = len(infos)
            else:
                unmatched += range(position, position + len(infos))
        position += len(infos)
    types = [_type_of(info) for info in jax.tree.leaves(args_info)]
    ties: dict[int, int] = {}
    for starts, places in trees.values():
        matched = _matched(starts, places, dataflow, _largest(types[starts[0] :][: widths[starts[0]]]) if starts else 0)
        for start in starts:
            if start in matched:
                ties.update({matched[start] + n: start + n for n in range(widths[start])})
            else:
                unmatched += range(start, start + widths[start])
    left: dict[Any, tuple[list[int], list[int]]] = {}
    for member in sorted(unmatched):
        left.setdefault(types[member], ([], []))[0].append(member)
    for place, type_ in enumerate(out_types):
        if type_ in left and place not in ties:
            left[type_][1].append(place)
    for members, places in left.values():
        ties.update({place: member for member, place in _matched(members, places, dataflow, 0).items()})
    return ties


def kept_state(args_info: Any, out_info: Any, dataflow: Dataflow) -> list[range]:
    """The positions of the leaves of arguments that are not donated although an output is their next value.

    Such an argument is a tree of arrays, of which an element of the result has the structure and the types, and is made
    of it by a few equations.
    """
    outputs = list(out_info) if isinstance(out_info, (tuple, list)) and not hasattr(out_info, "_fields") else [out_info]
    places: dict[Any, list[int]] = {}
    first = 0
    for output in outputs:
        places.setdefault(_tree_of(output), []).append(first)
        first += len(jax.tree.leaves(output))
    found, position = list[range](), 0
    for argument in [*args_info[0], *args_info[1].values()]:
        infos = jax.tree.leaves(argument)
        leaves, position = range(position, position + len(infos)), position + len(infos)
        candidates = places.get(_tree_of(argument), [])
        if len(infos) > 1 and candidates and not any(info.donated for info in infos):
            leaf = _largest([_type_of(info) for info in infos])
            near = dataflow.outputs_near(leaves[leaf], HOPS)
            if any(near.get(place + leaf, 0) for place in candidates):
                found.append(leaves)
    return found


def _matched(arguments: Sequence[int], places: Sequence[int], dataflow: Dataflow, leaf: int) -> dict[int, int]:
    """Argument -> place, each once. Both are first positions of equal trees, of which leaf number `leaf` tells."""
    by_place = dict(zip(arguments, places, strict=False))
    if len(places) <= 1 and len(arguments) == 1:
        return by_place
    near = {a: dataflow.outputs_near(a + leaf, HOPS) for a in arguments} if places else {}
    if all(place + leaf in near[a] or place + leaf in dataflow.unchanged for a, place in by_place.items()):
        return by_place
    wanted = {place + leaf: place for place in places}
    pairs = sorted((hops, a, wanted[at]) for a, found in near.items() for at, hops in found.items() if at in wanted)
    matched, taken = dict[int, int](), set[int]()
    for _, argument, place in pairs:
        if argument not in matched and place not in taken:
            matched[argument] = place
            taken.add(place)
    rest = (place for place in places if place not in taken)
    return matched | dict(zip((a for a in arguments if a not in matched), rest, strict=False))


def _largest(types: Sequence[Any]) -> int:
    """The leaf with most elements, which tells trees apart best: not a step's count."""
    return int(np.argmax([np.prod(shape) for shape, _ in types]))


def _tree_of(value: Any) -> tuple[Any, tuple[Any, ...]]:
    leaves, tree = jax.tree.flatten(value)
    return tree, tuple(map(_type_of, leaves))


def _type_of(info: Any) -> Any:
    return info.shape, info.dtype
