"""Damaged copies of files, the same ones in every run: flipped bits, cut ends, pieces moved."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


def damaged(data: bytes, count: int, seed: int) -> Iterator[bytes]:
    """`count` damaged copies of `data`: six of ten with one to four bits flipped, the others cut or spliced."""
    random = np.random.default_rng(seed)
    for number in range(count):
        if number % 10 < 6:
            yield flipped(data, random, 1 + number % 4)
        elif number % 10 < 8:
            yield data[: int(random.integers(0, len(data)))]
        else:
            yield spliced(data, random)


def flipped(data: bytes, random: np.random.Generator, bits: int) -> bytes:
    """The data with some bits flipped."""
    copy = bytearray(data)
    for place in random.integers(0, 8 * len(data), bits).tolist():
        copy[place // 8] ^= 1 << place % 8
    return bytes(copy)


def spliced(data: bytes, random: np.random.Generator) -> bytes:
    """The data with a piece of it in place of another."""
    length = int(random.integers(1, max(2, len(data) // 8)))
    source, target = (int(p) for p in random.integers(0, max(1, len(data) - length), 2))
    return data[:target] + data[source : source + length] + data[target + int(random.integers(0, 2 * length)) :]
