"""Does a failing program become small, and does its case survive the way through JSON?"""

from __future__ import annotations

from autopart.core.table.actions import Atomic, Propagate, Tile
from tests.property.random_programs import RandomProgram
from tests.property.shrink import Case, case_of, shrink

PROGRAM = next(p for p in (RandomProgram(seed, 3) for seed in range(500)) if "sort" in p.steps())


def test_steps_results_and_actions_without_which_it_fails_are_left_out():
    case = Case(PROGRAM, (("a", 2),), (Atomic(0, "a"), Propagate("a"), Atomic(1, "a")))

    def failure(case: Case) -> str:
        kept_whole = any(isinstance(a, Atomic) and a.value == 1 for a in case.actions)
        return "fails" if kept_whole and "sort" in case.program.steps() else ""

    small = shrink(case, failure)
    assert [s for s in small.program.steps() if not s.startswith("(")] == ["sort"]
    assert small.program.only is not None
    assert len(small.program.only) == 1
    assert small.actions == (Atomic(1, "a"),)


def test_case_in_json_is_the_same_case():
    program = RandomProgram(3, without=frozenset({1, 2}), only=(0,))
    case = Case(program, (("a", 2), ("b", 2)), (Tile(3, 0, "a"), Propagate("a"), Atomic(1, "b")))
    assert Case.from_json(case.to_json()) == case


def test_actions_of_a_batch_are_found_again_on_one_of_its_programs():
    case = case_of(PROGRAM.seed)
    assert any(isinstance(a, (Tile, Atomic)) for a in case.actions)
