"""Reads and writes problems in the format of the ASPLOS 2025 contest on intra-operator parallelism (google/iopddl).

    {"problem": {"name": "example",
                 "nodes": {"intervals": [[30, 70], [40, 70]], "costs": [[15], [55, 65]], "usages": [[10], [25, 25]]},
                 "edges": {"nodes": [[0, 1]], "costs": [[30, 40]]},
                 "usage_limit": 50},
     "solution": [0, 1]}

An interval is half-open; the costs of an edge are a matrix row by row. A cost of 10**18 or more means forbidden, which
is inf here. `usage_limit` may be missing: then there is none. `solution` is not in the contest's files; it is written
where a choice is given, and read as a start. Files that end in .gz are compressed.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from autopart.pairwise.field_checks import Floats, numbers
from autopart.pairwise.pairwise_error import Field, PairwiseError
from autopart.pairwise.pairwise_problem import PairwiseProblem

FORBIDDEN = 10**18
"""The contest's infinity."""


def read_problem(path: str | Path) -> PairwiseProblem:
    """The problem in a file; raises `PairwiseError` with the line and the field where it is malformed."""
    return read_problem_and_choice(path)[0]


def read_problem_and_choice(path: str | Path) -> tuple[PairwiseProblem, list[int] | None]:
    """The problem in a file, and the solution beside it if there is one."""
    try:
        raw = Path(path).read_bytes()
        text = (gzip.decompress(raw) if Path(path).suffix == ".gz" else raw).decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise PairwiseError(f"{path} cannot be read", why=str(error)) from None
    return parsed(text, str(path))


def parsed(text: str, source: str = "problem") -> tuple[PairwiseProblem, list[int] | None]:
    """The problem in a text, and its solution or None; errors name `source`, line and field.

    >>> problem, _ = parsed('''{"problem": {"name": "two",
    ...   "nodes": {"intervals": [[0, 2], [1, 3]], "costs": [[1], [5, 7]], "usages": [[4], [3, -2]]},
    ...   "edges": {"nodes": [[0, 1]], "costs": [[0, 1]]}, "usage_limit": 9}}''')
    Traceback (most recent call last):
    ...
    autopart.pairwise.pairwise_error.PairwiseError: problem, line 2: nodes.usages[1][1] is -2
      try  a finite number of at least 0
    """
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise PairwiseError(f"{source}, line {error.lineno}: this is no JSON", why=error.msg) from None
    except RecursionError:
        raise PairwiseError(f"{source}: lists in lists too deep to read") from None
    except ValueError as error:  # integers of thousands of digits
        raise PairwiseError(f"{source} cannot be read", why=str(error)) from None
    try:
        problem = _problem(document)
        choice = document.get("solution")
        if choice is not None:
            problem.checked(choice, ("solution",))
        return problem, choice
    except PairwiseError as error:
        line = line_of(text, error.field if error.field[:1] == ("solution",) else ("problem", *error.field))
        raise PairwiseError(f"{source}, line {line}: {error.what}", why=error.why, hint=error.hint) from None


def write_problem(problem: PairwiseProblem, path: str | Path, choice: ArrayLike | None = None) -> None:
    """Writes a problem, and a choice for it if one is given; numbers without a fraction are written as integers."""
    rows = [slice(a, b) for a, b in zip(problem.strategy_start[:-1], problem.strategy_start[1:], strict=True)]
    entries = [slice(a, b) for a, b in zip(problem.edge_start[:-1], problem.edge_start[1:], strict=True)]
    body: dict[str, Any] = {
        "name": problem.name,
        "nodes": {
            "intervals": problem.live.tolist(),
            "costs": [_plain(problem.cost[row]) for row in rows],
            "usages": [_plain(problem.usage[row]) for row in rows],
        },
        "edges": {"nodes": problem.edge_nodes.tolist(), "costs": [_plain(problem.edge_cost[row]) for row in entries]},
    }
    if problem.usage_limit is not None:
        body["usage_limit"] = _plain([problem.usage_limit])[0]
    document: dict[str, Any] = {"problem": body}
    if choice is not None:
        document["solution"] = problem.checked(choice).tolist()
    data = json.dumps(document).encode()
    Path(path).write_bytes(gzip.compress(data) if Path(path).suffix == ".gz" else data)


def _plain(values: Sequence[float] | np.ndarray) -> list[float | int]:
    return [FORBIDDEN if v == math.inf else int(v) if v == int(v) else v for v in map(float, values)]


def _problem(document: Any) -> PairwiseProblem:
    body = _member(document, (), "problem", dict)
    nodes, edges = _member(body, (), "nodes", dict), _member(body, (), "edges", dict)
    intervals, costs, usages = (_member(nodes, ("nodes",), name, list) for name in ("intervals", "costs", "usages"))
    ends, matrices = (_member(edges, ("edges",), name, list) for name in ("nodes", "costs"))
    if len(intervals) != len(costs):
        raise PairwiseError(f"{len(intervals)} intervals and {len(costs)} rows of costs", field=("nodes", "intervals"))
    if len(ends) != len(matrices):
        raise PairwiseError(f"{len(ends)} edges and {len(matrices)} rows of costs", field=("edges", "costs"))
    pairs: list[tuple[int, int, Any]] = []
    for e, (pair, matrix) in enumerate(zip(ends, matrices, strict=True)):
        if not isinstance(pair, list) or len(pair) != 2:
            raise PairwiseError("is no pair of nodes", field=("edges", "nodes", e), hint="[first node, second node]")
        pairs.append((pair[0], pair[1], forbidding(matrix, ("edges", "costs", e))))
    name = body.get("name", "")
    return PairwiseProblem.of(
        [forbidding(row, ("nodes", "costs", i)) for i, row in enumerate(costs)],
        usages,
        intervals,
        pairs,
        body.get("usage_limit"),
        name if isinstance(name, str) else str(name)[:80],
    )


def forbidding(row: Any, field: Field) -> Floats:
    """The costs with inf for the contest's infinity."""
    costs = numbers(row, field)
    return np.where(costs >= FORBIDDEN, np.inf, costs)


def _member(holder: Any, path: tuple[str, ...], name: str, kind: type) -> Any:
    if not isinstance(holder, dict) or name not in holder:
        owner = "" if path else "the problem " if name != "problem" else "the file "
        raise PairwiseError(f"{owner}has no {name!r}", field=path)
    if not isinstance(holder[name], kind):
        says = "an object" if kind is dict else "a list"
        raise PairwiseError(f"is a {type(holder[name]).__name__}", field=(*path, name), hint=says)
    return holder[name]


def line_of(text: str, path: Sequence[str | int]) -> int:
    """The line, from 1, at which the value at a path of a JSON text begins, or as far as the path leads.

    >>> line_of('{"a": 1,\\n "b": [5,\\n 6]}', ("b", 1))
    3
    """
    at = _blank(text, 0)
    for step in path:
        found = _entry(text, at, step)
        if found is None:
            break
        at = found
    return text.count("\n", 0, at) + 1


def _entry(text: str, at: int, step: str | int) -> int | None:
    """Where the entry of the object or list at `at` begins; None if there is none of this name or number."""
    if text[at] != ("{" if isinstance(step, str) else "["):
        return None
    decoder, number, at = json.JSONDecoder(), 0, _blank(text, at + 1)
    while text[at] not in "]}":
        key: str | int = number
        if isinstance(step, str):
            key, at = decoder.raw_decode(text, at)
            at = _blank(text, _blank(text, at) + 1)
        if key == step:
            return at
        _, at = decoder.raw_decode(text, at)
        at, number = _blank(text, at), number + 1
        if text[at] == ",":
            at = _blank(text, at + 1)
    return None


def _blank(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at
