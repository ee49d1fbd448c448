"""Are contest files read and written as the contest says, and are damaged ones refused with line and field?"""

from __future__ import annotations

import copy
import json
import math

import numpy as np
import pytest

from autopart.pairwise import PairwiseError, read_problem, solve, write_problem
from autopart.pairwise.contest_format import parsed, read_problem_and_choice
from tests.pairwise.random_problems import random_problem

SMALL = {
    "problem": {
        "name": "small",
        "nodes": {
            "intervals": [[0, 4], [2, 6]],
            "costs": [[3, 5], [0, 1, 10**18]],
            "usages": [[8, 2], [6, 4, 0]],
        },
        "edges": {"nodes": [[0, 1]], "costs": [[0, 7, 7, 7, 0, 2]]},
        "usage_limit": 10,
    }
}


def altered(path, value):
    document = copy.deepcopy(SMALL)
    holder = document
    for step in path[:-1]:
        holder = holder[step]
    if value is ...:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return json.dumps(document, indent=1)


def test_contest_file_is_read_and_solved():
    problem, choice = parsed(json.dumps(SMALL))
    assert choice is None
    assert np.isinf(problem.cost[4])
    assert solve(problem, 5).cost == 6


@pytest.mark.parametrize("name", ["problem.json", "problem.json.gz"])
@pytest.mark.parametrize("seed", range(5))
def test_written_problem_is_read_back_equal(tmp_path, name, seed):
    problem = random_problem(seed)
    write_problem(problem, tmp_path / name, np.zeros(problem.nodes, int))
    again, choice = read_problem_and_choice(tmp_path / name)
    assert choice == [0] * problem.nodes
    for field in ("strategy_start", "cost", "usage", "live", "edge_nodes", "edge_start", "edge_cost"):
        assert np.array_equal(getattr(problem, field), getattr(again, field))
    assert again.usage_limit == problem.usage_limit


@pytest.mark.parametrize(
    ("path", "value", "field", "marker"),
    [
        (("problem", "nodes", "usages", 1, 2), -3, "nodes.usages[1][2] is -3", "-3"),
        (("problem", "nodes", "costs", 0, 1), "x", "nodes.costs[0][1] is 'x'", '"x"'),
        (("problem", "nodes", "costs", 0, 1), None, "nodes.costs[0][1] is None", "null"),
        (("problem", "nodes", "costs", 0, 1), True, "nodes.costs[0][1] is True", "true"),
        (("problem", "nodes", "costs", 0, 1), math.nan, "nodes.costs[0][1] is nan", "NaN"),
        (("problem", "nodes", "costs", 0, 1), -math.inf, "nodes.costs[0][1] is -inf", "-Infinity"),
        (("problem", "nodes", "costs", 0, 1), -(10**400), "nodes.costs[0][1] is -1000", "-1000"),
        (("problem", "nodes", "costs", 0), [], "nodes.costs[0] has shape (0,)", None),
        (("problem", "nodes", "costs", 0), "ab", "nodes.costs[0] is 'ab'", '"ab"'),
        (("problem", "nodes", "usages", 0, 1), math.inf, "nodes.usages[0][1] is inf", "Infinity"),
        (("problem", "nodes", "intervals", 0), [5, 4], "nodes.intervals[0] is [5, 4]", "5,"),
        (("problem", "nodes", "intervals", 1, 0), 0.5, "nodes.intervals[1][0] is 0.5", "0.5"),
        (("problem", "nodes", "intervals", 1, 0), 10**30, "nodes.intervals[1][0] is 1e+30", "1000"),
        (("problem", "nodes", "intervals", 1), [3], "nodes.intervals is", None),
        (("problem", "nodes", "intervals", 1), None, "nodes.intervals[1] is None", "null"),
        (("problem", "edges", "costs", 0, 3), "7", "edges.costs[0][3] is '7'", '"7"'),
        (("problem", "edges", "nodes", 0), None, "edges.nodes[0] is no pair", "null"),
        (("problem", "edges", "nodes", 0, 1), 7, "edges.nodes[0][1] is 7", "7"),
        (("problem", "edges", "nodes", 0), [1, 1], "edges.nodes[0] joins node 1 with itself", None),
        (("problem", "edges", "costs", 0), [1, 2], "edges.costs[0] has 2 numbers", None),
        (("problem", "usage_limit"), -1, "usage_limit is -1", "-1"),
        (("problem", "usage_limit"), 10**400, "usage_limit is 1000", "1000"),
        (("problem", "usage_limit"), "x", "usage_limit is 'x'", '"x"'),
        (("problem", "nodes"), ..., "has no 'nodes'", None),
        (("problem", "nodes", "costs"), ..., "nodes has no 'costs'", None),
        (("problem", "edges", "costs"), {}, "edges.costs is a dict", None),
        (("problem", "nodes", "usages"), [[8, 2]], "nodes.usages has 1 rows", None),
        (("problem",), [], "problem is a list", None),
        (("solution",), [0, 9], "solution[1] is 9", "9"),
        (("solution",), [0], "solution has shape (1,)", None),
    ],
)
def test_malformed_file_is_refused_with_line_and_field(path, value, field, marker):
    text = altered(path, value)
    with pytest.raises(PairwiseError) as caught:
        parsed(text, "some.json")
    message = str(caught.value)
    assert field in message
    line = int(message.split("line ")[1].split(":")[0])
    if marker is not None:
        near = "\n".join(text.splitlines()[line - 1 : line + 2])
        assert marker in near


def test_text_that_is_no_json_is_refused_with_its_line():
    with pytest.raises(PairwiseError, match="line 3: this is no JSON"):
        parsed('{"problem":\n {\n oops}}')


@pytest.mark.parametrize(
    ("text", "says"),
    [("", "line 1: this is no JSON"), ("[]", "has no 'problem'"), ("null", "has no 'problem'"),
     ("[" * 100_000, "too deep"), ("1" * 5000, "cannot be read")],
    ids=["empty", "list", "null", "deep", "digits"],
)  # fmt: skip
def test_text_that_holds_no_problem_is_refused(text, says):
    with pytest.raises(PairwiseError, match=says):
        parsed(text)


def test_times_in_nanoseconds_take_no_memory_for_the_time_between():
    far = copy.deepcopy(SMALL)
    far["problem"]["nodes"]["intervals"] = [[0, 4 * 10**15], [2 * 10**15, 6 * 10**15]]
    problem, _ = parsed(json.dumps(far))
    assert problem.usage_of([0, 0]) == 14
    assert solve(problem, 5).cost == 6


def test_file_that_is_missing_or_no_gzip_is_refused(tmp_path):
    with pytest.raises(PairwiseError, match="cannot be read"):
        read_problem(tmp_path / "nothing.json")
    (tmp_path / "fake.json.gz").write_bytes(b"not compressed")
    with pytest.raises(PairwiseError, match="cannot be read"):
        read_problem(tmp_path / "fake.json.gz")
