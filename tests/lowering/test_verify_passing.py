"""Does the verifier see a reduction that is passed on where none can be, or that is lost on the way?"""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import autopart as ap
from autopart.core.layout import LAST_TILE, pending_axes
from autopart.spmd.verify_local import VerificationError, verify

MESH = ap.Mesh({"batch": 4})
X = np.ones((8, 16), "f4")


def lowered(op):
    return ap.jit(lambda x: op(x.T @ x), MESH, [ap.ManualPartition({"x": 0}, axis="batch")]).lower(X).program


def op_of(local, kind: str) -> int:
    return max(op for op in range(local.program.op_count) if local.program.spec(op).kind == kind)


def test_an_op_that_is_not_linear_may_not_pass_a_sum():
    local = lowered(jnp.tanh)
    op, (value,) = op_of(local, "tanh"), local.program.operands_of(op_of(local, "tanh"))
    pending = local.native[value]
    assert pending_axes(int(pending), 1) == ((0, LAST_TILE + 1),)
    passing, native, required, settled = (
        x.copy() for x in (local.passing, local.native, local.required, local.settled)
    )
    passing[op] = 1
    settled[value] = required[local.program.operand_ptr[op]] = native[local.program.result_ptr[op]] = pending
    with pytest.raises(VerificationError, match=r"tanh.*passes a pending sum"):
        verify(replace(local, passing=passing, native=native, required=required, settled=settled))


def test_a_sum_may_not_be_lost_on_its_way():
    local = lowered(lambda g: jnp.tanh(g.T))
    native = local.native.copy()
    native[local.program.result_ptr[op_of(local, "transpose")]] = 0
    with pytest.raises(VerificationError, match=r"transpose.*drops one"):
        verify(replace(local, native=native))
