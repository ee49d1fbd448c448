"""Does every rule cope with each attribute that StableHLO lets a program leave out?

    gather %x, %i {dimension_numbers = ..., slice_sizes = ..., indices_are_sorted = false}
    gather %x, %i {dimension_numbers = ..., slice_sizes = ...}                     is legal, and the same

Which attributes these are is found by leaving out each one of every example and asking MLIR whether it is still an op.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from autopart.core.doors.jax_internals import ir
from autopart.core.op_spec_import import spec_of
from autopart.core.ops.example_import import ExampleOp, example_op
from autopart.core.ops.rule import Example, default_attributes, mappings_of, rules
from tests.ops.oracle import Subject, Workbench, check, declared_trial, subject_of
from tests.ops.test_mappings_are_true_and_complete import nests

NOT_RUN = "custom_call"
"""A custom call's code trusts the attributes that it was written for; running it on fewer is not safe."""


def names_of(example: Example) -> list[str]:
    """The attributes of an example; a constant's value, which the bindings may not be able to read, is left out."""
    parsed = example_op(example)
    if parsed.op.name == "stablehlo.constant":
        return []
    with parsed.op.context:
        return [name for name, _ in parsed.op.attributes.items()]


def without(example: Example, name: str) -> ExampleOp | None:
    """The example without one attribute; None if that is no op."""
    parsed = example_op(example)
    with parsed.op.context, ir.Location.unknown():
        del parsed.op.attributes[name]
        try:
            parsed.op.verify()
        except ir.MLIRError:
            return None
    return replace(parsed, spec=spec_of(parsed.op))


def left_out() -> Iterator[tuple[str, int, Example, str]]:
    """(kind, number of the example, example, attribute) of all that may be left out."""
    for rule in rules():
        for number, example in enumerate(rule.examples):
            for name in names_of(example):
                if without(example, name) is not None:
                    yield rule.kind, number, example, name


CASES = list(left_out())
IDS = [f"{kind}-{number}-{name}" for kind, number, _, name in CASES]


def subject_without(example: Example, name: str) -> Subject:
    parsed = without(example, name)
    assert parsed is not None
    return replace(subject_of(example), op=parsed.op, module=parsed.module, spec=parsed.spec)


def distinct() -> list:
    """One case per kind, attribute and region: enough to run. By default one per kind and attribute."""
    seen, prompt, found = set(), set(), []
    for (kind, _, example, name), label in zip(CASES, IDS, strict=True):
        key = (kind, name, example_op(example).spec.region)
        if key not in seen and NOT_RUN not in kind and NOT_RUN not in example.text:
            seen.add(key)
            found.append(
                pytest.param(example, name, id=label, marks=[pytest.mark.slow] if (kind, name) in prompt else [])
            )
            prompt.add((kind, name))
    return found


def test_the_attributes_that_may_be_left_out_are_found():
    found = {(kind, name) for kind, _, _, name in CASES}
    assert found >= {
        ("gather", "indices_are_sorted"),
        ("scatter", "indices_are_sorted"),
        ("scatter", "unique_indices"),
        ("sort", "dimension"),
        ("cholesky", "lower"),
        ("convolution", "padding"),
    }


@pytest.mark.parametrize(("kind", "number", "example", "name"), CASES, ids=IDS)
def test_an_op_without_an_optional_attribute_has_a_spec_with_its_default(kind, number, example, name):
    parsed = without(example, name)
    assert parsed is not None
    mappings = mappings_of(parsed.spec)
    assert mappings is not None or NOT_RUN in kind
    explicit, default = example_op(example).spec, default_attributes(kind)
    assert name not in default or parsed.spec.attributes[name] == default[name]
    if parsed.spec.attributes.get(name) == explicit.attributes[name]:
        assert parsed.spec == explicit
        assert mappings == mappings_of(explicit)


@pytest.mark.parametrize(("example", "name"), distinct())
def test_slices_of_an_op_without_an_optional_attribute_make_up_the_whole(example: Example, name: str):
    subject = subject_without(example, name)
    mappings = mappings_of(subject.spec)
    assert mappings
    bench = Workbench(subject)
    for nest in nests(mappings):
        bench.add(declared_trial(subject, nest, mappings))
    runs = bench.run()
    for number, trial in enumerate(bench.trials):
        check(subject, trial, runs, number)
