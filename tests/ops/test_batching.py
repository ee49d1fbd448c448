"""Is an op with one more dim in front what the op is for each index of the dim? The oracle is the op itself."""

from __future__ import annotations

import numpy as np
import pytest

from autopart.core.doors.jax_internals import compiled_alone, func, ir, numpy_dtype
from autopart.core.mlir_values import mlir_type
from autopart.core.op import TensorType
from autopart.core.ops.rule import batched, rules
from autopart.spmd.emission.called_functions import bring_called_functions
from autopart.spmd.emission.local_op import MlirLocalOp
from tests.ops.oracle import Subject, subject_of
from tests.ops.stand_ins import replace_what_cpu_lacks
from tests.prompt import slow

CASES = [(rule.kind, n, example) for rule in rules() if rule.batched for n, example in enumerate(rule.examples)]


def run(subject: Subject, has_batch: tuple[bool, ...], size: int) -> list[np.ndarray] | None:
    """The op on the draws of `subject`, stacked for operands with the batch, else the first draw's; None: no form."""
    spec = subject.spec
    stacked = [np.stack([d[k] for d in subject.draws]) if b else subject.draws[0][k] for k, b in enumerate(has_batch)]
    inputs = [TensorType((size, *t.shape), t.dtype) if b else t for t, b in zip(spec.operands, has_batch, strict=True)]
    outputs = [TensorType((size, *t.shape), t.dtype) for t in spec.results] if any(has_batch) else list(spec.results)
    with subject.op.context, ir.Location.unknown():
        module = ir.Module.create()
        types = [[mlir_type(t) for t in group] for group in (inputs, outputs)]
        with ir.InsertionPoint(module.body):
            main = func.FuncOp("main", ir.FunctionType.get(*types))
            block = main.add_entry_block()
        with ir.InsertionPoint(block):
            local = MlirLocalOp(spec, subject.op, (), (), list(block.arguments), inputs, outputs, None)
            results = batched(local) if any(has_batch) else local.clone()
            if results is None:
                return None
            func.ReturnOp(results)
        bring_called_functions(main.operation, [subject.op], subject.module, module)
        replace_what_cpu_lacks(module)
        avals = [[(t.shape, numpy_dtype(t.dtype)) for t in group] for group in (inputs, outputs)]
        return compiled_alone(module, *avals, ())(*stacked)


@pytest.mark.parametrize(
    ("kind", "number", "example"),
    [case if case[1] == 0 and not case[0].startswith("chlo") else slow(*case) for case in CASES],
)
def test_an_op_with_a_batch_is_the_op_for_each_of_it(kind, number, example):
    subject = subject_of(example)
    count, size = len(subject.spec.operands), len(subject.draws)
    some = {tuple(k == one for k in range(count)) for one in range(count)} | {(True,) * count}
    found = {has_batch: run(subject, has_batch, size) for has_batch in sorted(some) if any(has_batch)}
    assert any(results is not None for results in found.values())
    for has_batch, results in found.items():
        for index in range(size) if results is not None else ():
            operands = tuple(subject.draws[index if b else 0][k] for k, b in enumerate(has_batch))
            alone = run(Subject(example, subject.op, subject.module, subject.spec, (operands,)), (False,) * count, 1)
            for one, of_all in zip(alone, results, strict=True):
                np.testing.assert_allclose(of_all[index], one, rtol=example.tolerance or 1e-6)
