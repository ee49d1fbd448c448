"""From tiles to elements in any order: what each device sends to whom, in as few rounds as there can be.

    tiles of 2      | 0 1 | 2 3 | 4 5 | 6 7 |       order 0 7 1 6 2 5 3 4
    tiles then      | 0 7 | 1 6 | 2 5 | 3 4 |
    round 0         0 -> 1 [1]    1 -> 2 [2]    2 -> 3 [4]    3 -> 0 [7]
    round 1         1 -> 3 [3]    2 -> 2 [5]    3 -> 1 [6]

What one device sends another is one message. A round is an all_permute: each device sends one message at most and
receives one. Messages are edges between givers and takers, rounds are colours of them: as many as the most messages of
one device (Koenig's theorem), each found by exchanging two colours along a path.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True)
class OrderedRound:
    """Messages that move at once.

    pairs   (from, to) positions along the dim's axes
    length  elements of the longest
    taken   per position, the elements of its tile that it sends; others than are asked for where it sends fewer
    """

    pairs: tuple[tuple[int, int], ...]
    length: int
    taken: tuple[tuple[int, ...], ...]
    moves: bool = True


@lru_cache(maxsize=1 << 10)
def ordered_rounds(
    order: tuple[int, ...], size: int, ways: int
) -> tuple[tuple[OrderedRound, ...], tuple[tuple[int, ...], ...]]:
    """The rounds that bring the elements of a dim of `size`, tiled `ways` ways, and where each position then finds its
    share of `order`, among the elements of its tile and of what it receives, one round behind the other."""
    tile, share = size // ways, len(order) // ways
    asked: dict[tuple[int, int], dict[int, int]] = {}
    for row, element in enumerate(order):
        message = asked.setdefault((element // tile, row // share), {})
        message.setdefault(element % tile, len(message))
    messages = sorted((pair for pair in asked if pair[0] != pair[1]), key=lambda pair: -len(asked[pair]))
    colours = _coloured(messages, ways)
    of_colour = [[m for m in messages if colours[m] == c] for c in range(max(colours.values(), default=-1) + 1)]
    lengths = [max(len(asked[m]) for m in each) for each in of_colour]
    begins = [tile + sum(lengths[:colour]) for colour in range(len(lengths))]
    rounds = list[OrderedRound]()
    for pairs, length in zip(of_colour, lengths, strict=True):
        rows = {giver: [*asked[giver, taker]] for giver, taker in pairs}
        taken = tuple((*rows.get(p, ()), *(0,) * (length - len(rows.get(p, ())))) for p in range(ways))
        rounds.append(OrderedRound(tuple(sorted(pairs)), length, taken))
    places = list[int]()
    for row, element in enumerate(order):
        pair = element // tile, row // share
        own = pair[0] == pair[1]
        places.append(element % tile if own else begins[colours[pair]] + asked[pair][element % tile])
    return tuple(rounds), tuple(tuple(places[p * share : (p + 1) * share]) for p in range(ways))


def _coloured(messages: list[tuple[int, int]], ways: int) -> dict[tuple[int, int], int]:
    """A colour for each message, which no other of its giver or of its taker has."""
    ends: list[dict[int, tuple[int, int]]] = [{} for _ in range(2 * ways)]
    colour: dict[tuple[int, int], int] = {}
    for message in messages:
        giver, taker = message[0], ways + message[1]
        a, b = _free(ends[giver]), _free(ends[taker])
        node, at, path = taker, a, list[tuple[int, int]]()
        while at in ends[node]:
            path.append(ends[node][at])
            node = ways + path[-1][1] if node < ways else path[-1][0]
            at = a + b - at
        for one in path:
            for node in (one[0], ways + one[1]):
                ends[node].pop(colour[one], None)
        for one in path:
            colour[one] = a + b - colour[one]
        colour[message] = a
        for one in (*path, message):
            ends[one[0]][colour[one]] = ends[ways + one[1]][colour[one]] = one
    return colour


def _free(taken: dict[int, tuple[int, int]]) -> int:
    return next(c for c in range(len(taken) + 1) if c not in taken)
