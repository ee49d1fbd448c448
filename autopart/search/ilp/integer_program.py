"""The integer program: variables, objective and constraints as arrays, whichever solver reads them.

    minimise    sum_i c_i . s_i  +  sum_ij sum_ab r_ij[a, b] e_ij[a, b]  +  penalty * m
    subject to  sum_a s_i[a] = 1                                each node has one strategy           `_one_each`
                sum_b e_ij[a, b] = s_i[a]                       an edge agrees with its ends         `_agree`
                sum_a e_ij[a, b] = s_j[b]
                sum_i live[t, i] * bytes_i . s_i - m <= room[t] memory at time t, m over it          `_memory`
                s binary, 0 <= e <= 1, m >= 0

What costs infinitely has no variable. With s fixed, e is the product of its ends, so e need not be declared binary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Floats = np.ndarray

OVER_BYTES = 1e9
"""Unit of memory rows and of m: numbers that solvers like."""


@dataclass(frozen=True, eq=False)
class ChoiceProblem:
    """One strategy for each node, at the least cost; what `integer_program` models.

    costs[i]         float64[strategies of i]
    edges[i, j]      float64[strategies of i, strategies of j], i <= j
    bytes[i]         float64[strategies of i]: what one value of the node holds
    live             float64[times, nodes]: how many values of the node are held
    room             float64[times]: bytes that they may hold together
    penalty          cost of each byte above the room at the worst time
    """

    costs: Sequence[Floats]
    edges: Mapping[tuple[int, int], Floats]
    bytes: Sequence[Floats]
    live: Floats
    room: Floats
    penalty: float

    def over_bytes(self, choice: Sequence[int]) -> float:
        """Bytes above the room at the worst time."""
        held = np.array([b[c] for b, c in zip(self.bytes, choice, strict=True)])
        return max(0.0, float((self.live @ held - self.room).max(initial=0.0)))

    def cost_of(self, choice: Sequence[int]) -> float:
        """What a choice costs, the penalty included."""
        seconds = sum(float(c[k]) for c, k in zip(self.costs, choice, strict=True))
        seconds += sum(float(matrix[choice[i], choice[j]]) for (i, j), matrix in self.edges.items())
        return seconds + self.penalty * self.over_bytes(choice)


@dataclass(frozen=True, eq=False)
class IntegerProgram:
    """minimise objective . x  subject to  lower <= A x <= upper,  0 <= x <= most,  x[integer] whole.

    A is given by its entries: value[k] at (row[k], column[k]). `start[i]` is where the strategies of node i begin;
    after those come the entries of edges, then m. The objective is in units of `unit` seconds, the largest cost of a
    node: solvers take what is below 1e-7 for nothing.
    """

    objective: Floats
    integer: np.ndarray
    most: Floats
    row: np.ndarray
    column: np.ndarray
    value: Floats
    lower: Floats
    upper: Floats
    start: np.ndarray
    unit: float

    def choice(self, x: Floats) -> list[int]:
        """The strategy of each node that a solution takes."""
        return [int(np.argmax(x[a:b])) for a, b in zip(self.start[:-1], self.start[1:], strict=True)]


class _Rows:
    """Constraints as they are collected."""

    def __init__(self) -> None:
        self.row: list[np.ndarray] = []
        self.column: list[np.ndarray] = []
        self.value: list[np.ndarray] = []
        self.lower: list[float] = []
        self.upper: list[float] = []

    def add(self, columns: np.ndarray, values: np.ndarray, lower: float, upper: float) -> None:
        self.row.append(np.full(len(columns), len(self.lower)))
        self.column.append(columns)
        self.value.append(values)
        self.lower.append(lower)
        self.upper.append(upper)


def integer_program(problem: ChoiceProblem) -> IntegerProgram:
    """The arrays of a problem; equal problems give equal arrays."""
    start = np.concatenate([[0], np.cumsum([len(c) for c in problem.costs])]).astype(np.int64)
    nodes = np.concatenate(list(problem.costs))
    allowed = [(i, j, matrix, *np.nonzero(np.isfinite(matrix))) for (i, j), matrix in problem.edges.items()]
    first = int(start[-1])
    rows, entries = _Rows(), [np.where(np.isfinite(nodes), nodes, 0.0)]
    _one_each(rows, start)
    for i, j, matrix, a, b in allowed:
        columns = first + np.arange(len(a))
        _agree(rows, columns, a, int(start[i]), matrix.shape[0])
        _agree(rows, columns, b, int(start[j]), matrix.shape[1])
        entries.append(matrix[a, b])
        first += len(a)
    _memory(rows, problem, start, over=first)
    unit = float(np.abs(entries[0]).max(initial=0.0)) or 1.0
    objective = np.concatenate([*entries, [problem.penalty * OVER_BYTES]]) / unit
    most = np.concatenate([np.isfinite(nodes).astype(float), np.ones(first - len(nodes)), [np.inf]])
    return IntegerProgram(
        objective=objective,
        unit=unit,
        integer=np.arange(len(objective)) < start[-1],
        most=most,
        row=np.concatenate(rows.row),
        column=np.concatenate(rows.column),
        value=np.concatenate(rows.value),
        lower=np.array(rows.lower),
        upper=np.array(rows.upper),
        start=start,
    )


def _one_each(rows: _Rows, start: np.ndarray) -> None:
    for a, b in zip(start[:-1].tolist(), start[1:].tolist(), strict=True):
        rows.add(np.arange(a, b), np.ones(b - a), 1.0, 1.0)


def _agree(rows: _Rows, columns: np.ndarray, end: np.ndarray, first: int, count: int) -> None:
    """The entries of an edge with strategy k at one end add up to that strategy's variable."""
    order = np.argsort(end, kind="stable")
    cuts = np.searchsorted(end[order], np.arange(count + 1))
    for k in range(count):
        own = columns[order[cuts[k] : cuts[k + 1]]]
        rows.add(np.append(own, first + k), np.append(np.ones(len(own)), -1.0), 0.0, 0.0)


def _memory(rows: _Rows, problem: ChoiceProblem, start: np.ndarray, over: int) -> None:
    for live, room in zip(problem.live, problem.room.tolist(), strict=True):
        held = np.concatenate([n * b for n, b in zip(live, problem.bytes, strict=True)])
        columns = np.flatnonzero(held)
        rows.add(np.append(columns, over), np.append(held[columns] / OVER_BYTES, -1.0), -np.inf, room / OVER_BYTES)
