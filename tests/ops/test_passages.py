"""May a reduction that is pending pass through each op as its rule says, and through no other? Asked of XLA.

passage (SUM; parts, whole) of multiply      multiply(x0, y) + multiply(x1, y) == multiply(x0 + x1, y) ?
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from autopart.base.registry import RegistryError
from autopart.core.op import AND, MAX, MIN, MUL, OR, SUM, WHOLE, OpSpec, TensorType, TileMapping
from autopart.core.ops.passages import Passage, linear_in, moved, together
from autopart.core.ops.rule import CUSTOM_CALLS, Example, Rule, describe, localize, passages_of, rules
from autopart.core.ops.rules.example_text import op
from autopart.core.ops.traits import Elementwise
from autopart.spmd.emission.local_op import MlirLocalOp
from tests.ops.oracle import Subject, Unsound, Workbench, check, subject_of

EXAMPLES = [
    pytest.param(rule, example, id=f"{rule.kind}-{i}", marks=[pytest.mark.slow] if i else [])
    for rule in rules()
    for i, example in enumerate(rule.examples)
    if "custom_call" not in example.text
]
"""By default the first of each rule. A custom call's code is not run on operands that it may not be made for."""


@dataclass(frozen=True)
class InParts:
    """A trial, as the oracle's, of an op on two devices, which have parts of some operands."""

    subject: Subject
    passage: Passage

    @property
    def nest(self) -> list[tuple[TileMapping, int]]:
        """One loop of two steps, which slices nothing; its result is what the passage says."""
        results = (self.passage.code,) * len(self.subject.spec.results)
        return [(TileMapping((WHOLE,) * len(self.subject.spec.operands), results, 2), 2)]

    ways = (2,)

    @property
    def results(self) -> tuple[TensorType, ...]:
        return self.subject.spec.results

    def operand_types(self, spec: OpSpec) -> list[TensorType]:
        return list(spec.operands)

    def emit(self, operands, types, positions):
        """The op as lowering emits it outside of any loop."""
        spec = self.subject.spec
        return localize(MlirLocalOp(spec, self.subject.op, (), [], operands, types, spec.results, None))  # pyright: ignore

    def on_device(self, operands: Sequence[np.ndarray], place: tuple[int, ...]) -> list[np.ndarray]:
        held = [
            parts_of(x, self.passage.code, seed)[place[0]] if in_parts else x
            for seed, (x, in_parts) in enumerate(zip(operands, self.passage.parts, strict=True))
        ]
        return [*held, np.array(place[0], np.int32)]


def parts_of(whole: np.ndarray, code: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays that the reduction combines into `whole`, exactly; of floats, not whole numbers."""
    rng = np.random.default_rng(seed)
    other = rng.integers(0, 2, whole.shape).astype(np.bool_)
    some = rng.integers(-16, 16, whole.shape)
    match code:
        case _ if code == SUM:
            first = (some / 4 if whole.dtype.kind not in "iu" else some).astype(whole.dtype)
            return first, (whole - first).astype(whole.dtype)
        case _ if code in (MAX, MIN):
            further = (np.minimum if code == MAX else np.maximum)(whole, some.astype(whole.dtype))
            return np.where(other, whole, further), np.where(other, further, whole)
        case _ if code == MUL:
            sign = np.ones_like(whole) if whole.dtype.kind == "u" else np.where(other, 1, -1).astype(whole.dtype)
            return sign, (whole * sign).astype(whole.dtype)
        case _ if code == AND:
            return whole | other, whole | ~other
        case _:
            return whole & other, whole & ~other


def sound(subject: Subject, passages: Sequence[Passage]) -> list[Passage]:
    """Those by which the parts' results make up the whole's, in every draw."""
    bench = Workbench(subject)
    trials = [InParts(subject, passage) for passage in passages]
    for trial in trials:
        bench.add(trial)  # pyright: ignore[reportArgumentType]
    runs = bench.run()
    found = []
    if not all(np.isfinite(run.whole[0]).any() for run in runs):
        return found
    for number, trial in enumerate(trials):
        try:
            check(subject, trial, runs, number)  # pyright: ignore[reportArgumentType]
            found.append(trial.passage)
        except Unsound:
            pass
    return found


def conceivable(subject: Subject) -> list[Passage]:
    """Sums of floats pending on any of the operands, unless the op leaves no number to compare."""
    floats = [t.dtype.startswith(("f", "bf", "complex")) for t in subject.spec.operands]
    rows = itertools.product(*([False, True] if able else [False] for able in floats))
    return [Passage(SUM, row) for row in rows if any(row)]


def stated(subject: Subject, passage: Passage) -> bool:
    """True if the rule has the passage, or one that has more operands in parts, zeros in every draw."""
    zeros = [not any(np.any(draw[k]) for draw in subject.draws) for k in range(len(passage.parts))]
    return any(
        other.code == passage.code
        and all(a == b or (b and zero) for a, b, zero in zip(passage.parts, other.parts, zeros, strict=True))
        for other in passages_of(subject.spec)
    )


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_parts_by_each_passage_make_up_the_whole(rule: Rule, example: Example):
    subject = subject_of(example)
    passages = passages_of(subject.spec)
    assert not passages or sound(subject, passages) == list(passages), describe(subject.spec)


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_no_op_that_is_linear_stops_sums_without_a_reason(rule: Rule, example: Example):
    subject = subject_of(example)
    spec = subject.spec
    one_float = len(spec.results) == 1 and spec.results[0].dtype.startswith(("f", "bf", "complex"))
    if not one_float or rule.traits.stops_sums:
        return
    missing = [p for p in sound(subject, [p for p in conceivable(subject) if not stated(subject, p)])]
    assert not missing, f"{missing} of {describe(spec)}"


TURNED = op("transpose", "4x6xf32 -> 6x4xf32", "permutation = array<i64: 1, 0>")
PRODUCT = op("multiply", "4x6xf32, 4x6xf32 -> 4x6xf32")


@pytest.mark.parametrize("code", [SUM, MAX, MIN, MUL])
def test_a_transpose_passes_every_reduction_of_numbers(code: int):
    assert Passage(code, (True,)) in sound(subject_of(TURNED), [Passage(code, (True,))])


@pytest.mark.parametrize(
    ("example", "false"),
    [
        (PRODUCT, Passage(SUM, (True, True))),
        (PRODUCT, Passage(MAX, (True, False))),
        (op("exponential", "4x6xf32 -> 4x6xf32"), Passage(SUM, (True,))),
        (op("divide", "4x6xi32, 4x6xi32 -> 4x6xi32", feed=((1, 9), (2, 5))), Passage(SUM, (True, False))),
        (op("floor", "4x6xf32 -> 4x6xf32"), Passage(SUM, (True,))),
    ],
)
def test_a_false_passage_is_caught(example: Example, false: Passage):
    assert sound(subject_of(example), [false]) == []


def test_what_a_rule_states_for_other_operands_than_the_op_has_is_refused():
    array = TensorType((4,), "f32")
    spec = OpSpec("custom_call", {"call_target_name": "bad"}, (array,), (array,))
    traits = Elementwise(passes=lambda spec: [Passage(SUM, (True, True))])
    bad = Rule("custom_call @bad", "here", lambda spec: [], traits=traits)
    with CUSTOM_CALLS.temporarily("bad", bad), pytest.raises(RegistryError, match="the op has 1 operands"):
        passages_of(spec)


def test_booleans_have_no_sums_and_complex_numbers_no_maximum():
    boolean, complex_ = (
        OpSpec("x", {}, (t,), (t,)) for t in (TensorType((4,), "i1"), TensorType((4,), "complex<f32>"))
    )
    assert [p.code for p in moved()(boolean)] == [AND, OR]
    assert [p.code for p in moved()(complex_)] == [SUM, MUL]
    assert [*together(SUM)(boolean), *linear_in(0)(boolean), *together(MAX)(complex_)] == []
