"""Is each declared tile mapping true, and is none missing? Asked of XLA, for every rule in the registry."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import jax
import numpy as np
import pytest

from autopart.core.op import ANY, REDUCTION_NAMES, SUM, TileMapping
from autopart.core.registry import Example, Rule, describe, mappings_of, rules
from tests.ops.oracle import (
    Subject,
    Trial,
    Workbench,
    candidate_trials,
    check,
    conceivable,
    declared_trial,
    sound_mapping,
    subject_of,
)

EXAMPLES = [pytest.param(rule, example, id=f"{rule.kind}-{i}") for rule in rules() for i, example in enumerate(rule.examples)]
SEARCHED = [p for p in EXAMPLES if "custom_call" not in p.values[1].text]
"""A custom call's code trusts the shapes that it was compiled for; running it on others is not safe."""

CANDIDATES = 150


def nests(subject: Subject) -> list[list[tuple[int, int]]]:
    """Each mapping alone in the fewest and the most ways, over two axes, and with each other mapping around it or in it."""
    mappings = mappings_of(subject.spec)
    assert mappings is not None
    found = []
    for number, mapping in enumerate(mappings):
        least = _smallest_factor(mapping.extent)
        found += [[(number, ways)] for ways in sorted({least, _most(mapping.extent)})]
        if mapping.extent > least and mapping.extent <= 8:
            found.append([(number, least), (number, mapping.extent // least)])
    for i, pair in enumerate(itertools.combinations(range(len(mappings)), 2)):
        a, b = pair if i % 2 else pair[::-1]
        ways = [_smallest_factor(mappings[n].extent) for n in (a, b)]
        if math.prod(ways) <= 6:
            found.append([(a, ways[0]), (b, ways[1])])
    return found


def _smallest_factor(n: int) -> int:
    return next(k for k in range(2, n + 1) if n % k == 0)


def _most(extent: int) -> int:
    return max(k for k in range(2, 13) if extent % k == 0)


def undeclared(subject: Subject, rng: np.random.Generator) -> Iterator[Trial]:
    """Trials by mappings that the rule does not declare."""
    mappings = mappings_of(subject.spec)
    assert mappings is not None
    for ways in (2, 3):
        for candidate in conceivable(subject, ways, CANDIDATES, rng):
            known = any(_same_loop(candidate, m) and m.extent % ways == 0 for m in mappings)
            if not known and not _aborts(subject, candidate):
                yield from candidate_trials(subject, candidate)


def _aborts(subject: Subject, candidate: TileMapping) -> bool:
    """True for a transform whose length is not its dim's: XLA ends the process instead of raising."""
    if subject.spec.kind != "fft":
        return False
    batch = len(subject.spec.results[0].shape) - len(subject.spec.attributes["fft_length"])
    return candidate.operands[0] >= batch or batch <= candidate.results[0] < SUM


def _same_loop(candidate: TileMapping, declared: TileMapping) -> bool:
    results = tuple(SUM if r in REDUCTION_NAMES or r == ANY else r for r in declared.results)
    return candidate.operands == declared.operands and candidate.results == results


def sound(subject: Subject, trials: list[Trial]) -> set[TileMapping]:
    """Those trials' mappings whose slices make up the whole. What XLA cannot compile is not an op on slices."""
    bench = Workbench(subject)
    added = [trial for trial in trials if bench.try_to_add(trial) is not None]
    if not added:
        return set()
    try:
        runs = bench.run()
    except jax.errors.JaxRuntimeError:
        half = len(added) // 2
        return sound(subject, added[:half]) | sound(subject, added[half:]) if half else set()
    found = {sound_mapping(subject, trial, runs, number) for number, trial in enumerate(bench.trials)}
    return {mapping for mapping in found if mapping is not None}


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_slices_by_each_declared_mapping_make_up_the_whole(rule: Rule, example: Example):
    subject = subject_of(example)
    bench = Workbench(subject)
    for nest in nests(subject):
        bench.add(declared_trial(subject, nest))
    runs = bench.run()
    for number, trial in enumerate(bench.trials):
        check(subject, trial, runs, number)


@pytest.mark.parametrize(("rule", "example"), SEARCHED)
def test_no_sound_mapping_is_missing_without_a_reason(rule: Rule, example: Example):
    subject = subject_of(example)
    found = sound(subject, list(undeclared(subject, np.random.default_rng(0))))
    missing = [m for m in found if not any(reason.covers(subject.spec, m) for reason in rule.reasons)]
    assert not missing, f"{missing} of {describe(subject.spec)}"
