"""Where the ops of a program came from: source line and named scope."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from autopart.base.user_line import is_of_package, is_own
from autopart.core.doors.host_callbacks import Body
from autopart.core.doors.jax_internals import ir

_FRAME = re.compile(r'"([^"]*\.py)":(\d+)')


class Source:
    """Where ops came from: a representative MLIR op per spec, each op's location text, and its bodies.

    ops         MLIR ops; `op_source` and `call_site`, int32 for each op of the program, count in these
    bodies      host callbacks and kernels, which the module calls by index
    beside      modules that hold ops which passes made; an op is good as long as its module is
    closed_over the arrays of the first arguments, which no call brings in
    """

    def __init__(
        self,
        module: ir.Module,
        representatives: list[ir.Operation | None],
        ops: list[ir.Operation | None],
        op_source: np.ndarray,
        call_site: np.ndarray,
        bodies: Sequence[Body] = (),
        beside: Sequence[ir.Module] = (),
        closed_over: Sequence[np.ndarray] = (),
    ):
        self.module, self.representatives = module, representatives
        self.bodies, self._beside, self.closed_over = tuple(bodies), tuple(beside), tuple(closed_over)
        self._ops, self._op_source, self._call_site = ops, op_source, call_site

    def kept(self, ops: np.ndarray, specs: list[int]) -> Source:
        """Of the ops that are True in `ops`, and of the specs that are left."""
        left = [self.representatives[s] for s in specs]
        return self._with(left, self._ops, self._op_source[ops], self._call_site[ops])

    def rewritten(
        self,
        like: np.ndarray,
        spec: np.ndarray,
        more: Sequence[ir.Operation | None],
        beside: Sequence[ir.Module] = (),
    ) -> Source:
        """Of ops that come from where the ops `like` do, int64[ops], and are the representatives of specs, int64[ops],
        or those very ops where that is -1.

        `more` are the representatives of further specs, and `beside` the modules that hold those.
        """
        known, op_source = [*self.representatives, *more], self._op_source[like]
        others = np.flatnonzero(spec >= 0)
        used, of_used = np.unique(spec[others], return_inverse=True)
        made = [known[s] for s in used.tolist()]
        there = np.array([op is not None for op in made], np.bool_)[of_used]
        op_source[others[there]] = len(self._ops) + of_used[there]
        return self._with(known, [*self._ops, *made], op_source, self._call_site[like], beside)

    def _with(
        self,
        representatives: list[ir.Operation | None],
        ops: list[ir.Operation | None],
        op_source: np.ndarray,
        call_site: np.ndarray,
        beside: Sequence[ir.Module] = (),
    ) -> Source:
        beside = (*self._beside, *beside)
        return Source(
            self.module, representatives, ops, op_source, call_site, self.bodies, beside, self.closed_over
        )  # fmt: skip

    @property
    def op_count(self) -> int:
        """How many ops it knows."""
        return len(self._op_source)

    def source_of(self, op: int) -> ir.Operation | None:
        """The MLIR op that op number `op` was made from."""
        return self._ops[self._op_source[op]]

    def where(self, op: int) -> str:
        """Location of op number `op` ("train.py:12 jit(step)/dense"), empty if the module has none.

        An op of a function that carries no line of its own gets the line of the outermost call it was inlined for.
        """
        source, site = self._ops[self._op_source[op]], self._ops[self._call_site[op]]
        if source is None:
            return ""
        own = describe_location(source.location)
        if site is None or ".py:" in own:
            return own
        return f"{describe_location(site.location)}/{own}".rstrip("/")


def describe_location(location: ir.Location) -> str:
    """A location as `file:line scope`; empty where unknown.

    The line is the innermost of the user's own: the first frame that is neither of an installed package nor of
    autopart, or the innermost of a package's where there is none. The scope names modules, as in
    "jit(step)/Encoder/dot_general".
    """
    text = str(location)
    if "unknown" in text[:12]:
        return ""
    scope = next((q for q in text.split('"')[1::2] if not q.endswith(".py")), "")
    frames = [frame for frame in _FRAME.findall(text) if not is_own(frame[0])]
    if not frames:
        return scope
    file, line = next((frame for frame in frames if not is_of_package(frame[0])), frames[0])
    return f"{file}:{line} {scope}".strip()
