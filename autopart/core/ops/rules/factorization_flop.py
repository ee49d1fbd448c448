"""Flop of the factorizations that jax calls by name, on CPU (LAPACK), GPU (cuSolver, hipSolver) and TPU.

    lapack_spotrf_ffi, cusolver_potrf_ffi      a[b,n,n]      b n n n / 3
    lapack_sgeqrf_ffi, Qr                      a[b,m,n]      b (2 m n n - 2/3 n n n),  m >= n

Counts are those of LAPACK working note 41 and of Golub and Van Loan, Matrix Computations, with vectors where a call has
them. A complex operation counts as one.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from autopart.core.op import OpSpec
from autopart.core.ops.rule import target_of

_FLOP: dict[tuple[str, ...], Callable[[float, float], float]] = {
    ("potrf",): lambda m, n: n**3 / 3,
    ("getrf", "ludecomposition"): lambda m, n: m * n * n - n**3 / 3,
    ("geqrf", "geqp3"): lambda m, n: 2 * m * n * n - 2 * n**3 / 3,
    ("orgqr", "ungqr", "productofelementaryhouseholderreflectors"): lambda m, n: 2 * m * n * n - 2 * n**3 / 3,
    ("syevd", "heevd", "syevj", "heevj", "eigh"): lambda m, n: 9 * n**3,
    ("gesdd", "gesvd"): lambda m, n: 4 * m * m * n + 22 * n**3,
    ("geev", "gees"): lambda m, n: 25 * n**3,
    ("gehrd",): lambda m, n: 10 * n**3 / 3,
    ("sytrd", "hetrd"): lambda m, n: 4 * n**3 / 3,
}
"""Routine -> flop of one matrix a[m,n], m >= n."""


def factorization_flop(spec: OpSpec) -> float | None:
    """Flop of a custom call whose target is one of these routines; None for any other."""
    target = target_of(spec).lower()
    shapes = [t.shape for t in spec.operands]
    if "trsm" in target:
        return float(math.prod(shapes[1]) * shapes[0][-1])
    found = next((flop for names, flop in _FLOP.items() if any(name in target for name in names)), None)
    if found is None or not shapes or len(shapes[0]) < 2:
        return None
    *batch, rows, columns = shapes[0]
    return math.prod(batch) * found(max(rows, columns), min(rows, columns))
