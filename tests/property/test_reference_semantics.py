"""Programs nobody wrote: loop nests run in sequence = the partitioned run = the unpartitioned run?

pytest tests/property/test_reference_semantics.py --property-cases=8000      an eighth as many programs: 1000

`Lowered.interpret` shares nothing with the lowering but the table and the ops themselves. Where it agrees with plain
jax and the partitioned run does not, the lowering is wrong; where neither agrees, the table or an op's rule is.
"""

from __future__ import annotations

import dataclasses
import warnings

import jax
import pytest

import autopart as ap
from tests.property.batches import PROGRAMS_PER_MODULE, Batch, difference, judge

ENDS_THE_PROCESS = {315}
"""Seeds of programs that end the process in XLA's CPU compiler as they are, without any partitioning: a comparison of a
reduction's second result with itself, "Failed to infer result type(s)"."""


def pytest_generate_tests(metafunc):
    if "number" in metafunc.fixturenames:
        cases = metafunc.config.getoption("--property-cases") // 8
        metafunc.parametrize("number", range(max(1, cases // PROGRAMS_PER_MODULE)))


@pytest.mark.slow
def test_loop_nests_in_sequence_compute_what_devices_and_plain_jax_compute(number):
    batch = Batch.numbered(number)
    programs = tuple(program for program in batch.programs if program.seed not in ENDS_THE_PROCESS)
    batch = dataclasses.replace(batch, programs=programs)
    inputs = batch.inputs()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ap.SearchWarning)
        lowered = ap.jit(batch.__call__, ap.Mesh(dict(batch.mesh)), batch.schedule()).lower(inputs)
    in_sequence = lowered.interpret(inputs)
    on_devices = lowered.compile()(inputs)
    whole = jax.jit(batch.__call__)(inputs)
    wrong: list[str] = []
    for program in batch.programs:
        name = program.name
        found = judge(program, inputs[name], whole[name], in_sequence[name])
        if found is not None and not found.excepted:
            wrong.append(f"{name} in sequence, against plain jax: {found.message}")
        differs = difference(program.roundings(), in_sequence[name], on_devices[name])
        if differs:
            wrong.append(f"{name} on devices, against in sequence: {differs}")
    assert not wrong, "\n\n".join(wrong)
