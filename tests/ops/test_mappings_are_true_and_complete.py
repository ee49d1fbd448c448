"""Is each declared tile mapping true, and is none missing? Asked of XLA, for every rule in the registry."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import jax
import numpy as np
import pytest

from autopart.core.op import ANY, MAX, REDUCTION_NAMES, SUM, TileMapping
from autopart.core.ops.rule import Example, Rule, describe, mappings_of, rules
from autopart.core.ops.rules.dot_general import DOT
from autopart.core.ops.rules.example_text import op
from autopart.core.table.mapping_table import excluded
from tests.ops.oracle import (
    Subject,
    Trial,
    Unsound,
    Workbench,
    candidate_trials,
    check,
    conceivable,
    declared_trial,
    sliced,
    sound_mapping,
    subject_of,
)

EXAMPLES = [
    pytest.param(rule, example, id=f"{rule.kind}-{i}", marks=[pytest.mark.slow] if i else [])
    for rule in rules()
    for i, example in enumerate(rule.examples)
]
"""By default the first example of each rule."""

SEARCHED = [p for p in EXAMPLES if "custom_call" not in p.values[1].text]
"""A custom call's code trusts the shapes that it was compiled for; running it on others is not safe."""

CANDIDATES = 150


def nests(mappings: Sequence[TileMapping]) -> list[list[tuple[int, int]]]:
    """Each mapping alone in the fewest and the most ways, over two axes, and nested with each other mapping.

    Around a mapping that comes after others, these are used up.
    """
    found, exclusive = [], excluded(mappings)
    outside = [_used_up(mapping, mappings) for mapping in mappings]
    for number, mapping in enumerate(mappings):
        least = _smallest_factor(mapping.extent)
        found += [[*outside[number], (number, ways)] for ways in sorted({least, _most(mapping.extent)})]
        if least < mapping.extent <= 8:
            found.append([*outside[number], (number, least), (number, mapping.extent // least)])
    for i, pair in enumerate(itertools.combinations(range(len(mappings)), 2)):
        a, b = pair if i % 2 else pair[::-1]
        ways = [_smallest_factor(mappings[n].extent) for n in (a, b)]
        before = [*outside[a], *outside[b]]
        apart = not (exclusive[a] >> b & 1 or exclusive[b] >> a & 1 or {a, b} & {n for n, _ in before})
        if math.prod([*ways, *(n for _, n in before)]) <= 6 and apart:
            found.append([*before, (a, ways[0]), (b, ways[1])])
    return found


def _used_up(mapping: TileMapping, mappings: Sequence[TileMapping]) -> list[tuple[int, int]]:
    """The loops that must stand around a mapping, outermost first."""
    if mapping.after is None:
        return []
    return [*_used_up(mapping.after, mappings), (mappings.index(mapping.after), mapping.after.extent)]


def _smallest_factor(n: int) -> int:
    return next(k for k in range(2, n + 1) if n % k == 0)


def _most(extent: int) -> int:
    return max(k for k in range(2, 13) if extent % k == 0)


def undeclared(subject: Subject, mappings: Sequence[TileMapping]) -> Iterator[Trial]:
    """Trials by mappings other than `mappings`."""
    rng = np.random.default_rng(0)
    for ways in (2, 3):
        for candidate in conceivable(subject, ways, CANDIDATES, rng):
            known = any(_same_loop(candidate, m) and m.extent % ways == 0 for m in mappings)
            if not known and _is_an_op(subject, candidate):
                yield from candidate_trials(subject, candidate, mappings)


def _is_an_op(subject: Subject, candidate: TileMapping) -> bool:
    """False where MLIR would not notice that local types do not fit, and XLA would fail, or even end the process."""
    spec = subject.spec
    local = [sliced(t, d, candidate.extent).shape for t, d in zip(spec.operands, candidate.operands, strict=True)]
    result = sliced(spec.results[0], candidate.results[0], candidate.extent).shape if spec.results else ()
    if spec.kind.startswith("chlo.broadcast"):
        try:
            return np.broadcast_shapes(*local) == result
        except ValueError:
            return False
    if spec.kind in ("all_gather", "all_to_all", "reduce_scatter"):
        return local == [result]
    if spec.kind == "fft":
        batch = len(result) - len(spec.attributes["fft_length"])
        return candidate.operands[0] < batch and not batch <= candidate.results[0] < len(result)
    return True


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


def declared_by(subject: Subject) -> tuple[TileMapping, ...]:
    """The mappings that the registry holds for an op under test."""
    mappings = mappings_of(subject.spec)
    assert mappings is not None, f"{subject.spec.kind} has no rule"
    return mappings


def prove(subject: Subject, mappings: Sequence[TileMapping]) -> None:
    """Raises `Unsound` unless slices by each of `mappings`, and by pairs of them, make up the whole."""
    bench = Workbench(subject)
    for nest in nests(mappings):
        bench.add(declared_trial(subject, nest, mappings))
    runs = bench.run()
    for number, trial in enumerate(bench.trials):
        check(subject, trial, runs, number)


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_slices_by_each_declared_mapping_make_up_the_whole(rule: Rule, example: Example):
    subject = subject_of(example)
    prove(subject, declared_by(subject))


@pytest.mark.parametrize(("rule", "example"), SEARCHED)
def test_no_sound_mapping_is_missing_without_a_reason(rule: Rule, example: Example):
    subject = subject_of(example)
    found = sound(subject, list(undeclared(subject, declared_by(subject))))
    missing = [m for m in found if not any(omission.covers(subject.spec, m) for omission in rule.omissions)]
    assert not missing, f"{missing} of {describe(subject.spec)}"


MATRICES = op("dot_general", "4x6xf32, 6x2xf32 -> 4x2xf32", DOT.format("", "", "1", "0"))
TURNED = op("reverse", "4x6xf32 -> 4x6xf32", "dimensions = array<i64: 1>")


def test_a_false_mapping_is_caught():
    with pytest.raises(Unsound):
        prove(subject_of(TURNED), [TileMapping((1,), (1,), 6)])


def test_a_sum_declared_as_a_maximum_is_caught():
    with pytest.raises(Unsound):
        prove(subject_of(MATRICES), [TileMapping((1, 0), (MAX,), 6)])


@pytest.mark.parametrize("left_out", range(3))
def test_a_missing_mapping_is_found(left_out: int):
    subject = subject_of(MATRICES)
    mappings = list(declared_by(subject))
    expected = mappings.pop(left_out)
    found = sound(subject, list(undeclared(subject, mappings)))
    assert {(m.operands, m.results) for m in found} == {(expected.operands, expected.results)}
