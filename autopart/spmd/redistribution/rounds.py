"""From tiles to stretches: which pieces of its tile each device sends to whom, in rounds.

    tiles of 2     | 0 1 | 2 3 | 4 5 | 6 7 |         position 0 .. 3 along the axes of the dim
    x[2:6], 1 each   2 <- position 1    3 <- position 1    4 <- position 2    5 <- position 2

    round 0        keeps its own    1 has 3, 2 has 4
    round 1        1 -> 0  [2]      2 -> 3  [5]

In a round each device sends at most one piece and receives at most one, so a round is one all_permute. All pieces of a
round are as long as its longest: what is sent beyond what is asked for lies in the sender's tile and belongs where the
receiver puts it, so pieces may overlap.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from autopart.core.stretch import Stretch


@dataclass(frozen=True)
class Round:
    """Pieces that move at once.

    pairs   (from, to) positions along the dim's axes
    length  elements of each piece
    taken   per position, where in its tile the piece begins that it sends; 0 for one that sends none
    put     per position, where in its stretch the piece begins that it receives; `-length` for one that receives none.
            A piece may begin before the stretch and end behind it.
    """

    pairs: tuple[tuple[int, int], ...]
    length: int
    taken: tuple[int, ...]
    put: tuple[int, ...]

    @property
    def moves(self) -> bool:
        """Whether anything goes from one device to another."""
        return any(giver != taker for giver, taker in self.pairs)


@lru_cache(maxsize=1 << 12)
def rounds_of(stretch: Stretch, size: int, ways: int) -> tuple[Round, ...]:
    """The rounds that assemble the stretches of a dim of `size`, tiled `ways` ways; elements outside it are zeros.

    Where the receivers are as many as the devices, a device that keeps its own is part of the round; else the pieces
    that devices keep are the first round, in which nothing moves.
    """
    tile = size // ways
    if stretch.times > 1:
        return _exchanged(stretch, tile, ways)
    wanted = [piece for taker in range(ways) for piece in _pieces(stretch, tile, taker, ways)]
    if len({w[0] for w in wanted}) == len({w[1] for w in wanted}) == len(wanted) == ways:
        return (_round(wanted, stretch, tile, ways),)
    own = [w for w in wanted if w[0] == w[1]]
    moved = _coloured([w for w in wanted if w[0] != w[1]], tile)
    return tuple(_round(each, stretch, tile, ways) for each in (own, *moved) if each)


Piece = tuple[int, int, int, int, int]
"""(from, to, begin, end, start): a piece of the dim that one position needs of another's tile, which begins at `start`.
Of a stretch that wraps, counted as if the dim came again before and behind."""


def _pieces(stretch: Stretch, tile: int, taker: int, ways: int) -> Iterator[Piece]:
    """Those of the tiles that a stretch reaches into."""
    first = stretch.first(ways, taker)
    begin, end = first, first + stretch.length(ways)
    if not stretch.wraps:
        begin, end = max(begin, 0), min(end, tile * ways)
    for giver in range(begin // tile, math.ceil(end / tile) if end > begin else begin // tile):
        yield giver % ways, taker, max(begin, giver * tile), min(end, (giver + 1) * tile), giver * tile


def _exchanged(stretch: Stretch, tile: int, ways: int) -> tuple[Round, ...]:
    """Rounds in which every device sends one piece and receives one: of each step's rows those of one device.

    Piece q of the dim is step q // ways of device q % ways, and every tile holds `times` of them. Devices whose first
    pieces go to the same one begin with different pieces.
    """
    length, alike = tile // stretch.times, ways // math.gcd(stretch.times, ways)
    rounds = list[Round]()
    for number in range(stretch.times):
        pairs, taken, put = list[tuple[int, int]](), [0] * ways, [0] * ways
        for giver in range(ways):
            piece = (number + giver // alike) % stretch.times
            step, taker = divmod(giver * stretch.times + piece, ways)
            pairs.append((giver, taker))
            taken[giver], put[taker] = piece * length, step * length
        rounds.append(Round(tuple(pairs), length, tuple(taken), tuple(put)))
    return tuple(rounds)


def _coloured(pieces: list[Piece], tile: int) -> list[list[Piece]]:
    """Pieces in rounds: each goes into the first in which its giver and its taker are free, by distance."""
    rounds: list[list[Piece]] = []
    for piece in sorted(pieces, key=lambda p: (p[4] // tile - p[1], p[1])):
        for one in rounds:
            if all(piece[0] != other[0] and piece[1] != other[1] for other in one):
                one.append(piece)
                break
        else:
            rounds.append([piece])
    return rounds


def _round(pieces: list[Piece], stretch: Stretch, tile: int, ways: int) -> Round:
    length = max(end - begin for _, _, begin, end, _ in pieces)
    taken, put = [0] * ways, [-length] * ways
    for giver, taker, begin, _, start in pieces:
        taken[giver] = min(begin - start, tile - length)
        put[taker] = start + taken[giver] - stretch.first(ways, taker)
    return Round(tuple((p[0], p[1]) for p in pieces), length, tuple(taken), tuple(put))
