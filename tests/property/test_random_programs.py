"""Programs nobody wrote: does any random partitioning crash, break an invariant or change a number?

The first quarter of the programs is compared in `test_reference_semantics.py`, which also runs them in sequence.

pytest tests/property --property-cases=5000      as many programs as wanted, ten to a module
python -m tests.property.child batches 12        which programs of batch 12 fail
python -m tests.property.shrink 123              program 123, as small as it fails
"""

from __future__ import annotations

import autopart as ap
from tests.property.batches import PROGRAMS_PER_MODULE, Batch
from tests.property.child import rows_of_batch
from tests.property.random_programs import RandomProgram
from tests.property.random_schedules import RandomActions


def pytest_generate_tests(metafunc):
    if "batch" not in metafunc.fixturenames:
        return
    count = metafunc.config.getoption("--property-cases") // PROGRAMS_PER_MODULE
    metafunc.parametrize("batch", range(count // 4, max(1, count)))


def test_random_partitioning_keeps_the_numbers(batch):
    whole = Batch.numbered(batch, by_hand=True)
    rows = rows_of_batch(whole)
    wrong = [f"program {seed} on {whole.mesh}: {kind}: {text}" for seed, kind, text, excepted in rows if not excepted]
    assert not wrong, "\n\n".join(wrong)


def test_one_seed_gives_one_partitioning():
    program = RandomProgram(1)
    batch = Batch((program,), {"a": 2, "b": 2})
    texts = [
        ap.jit(batch.__call__, ap.Mesh(dict(batch.mesh)), [RandomActions(program)]).lower(batch.inputs()).as_text("hlo")
        for _ in range(2)
    ]
    assert texts[0] == texts[1]
