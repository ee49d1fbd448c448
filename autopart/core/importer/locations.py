"""Where the ops of a program came from: source line and named scope."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import compress
from pathlib import Path

from autopart.core.host_callbacks import HostCallback
from autopart.core.jax_internals import ir

_FRAME = re.compile(r'"([^"]*\.py)":(\d+)')
_OWN = str(Path(__file__).parents[2])


class Source:
    """Where ops came from: a representative MLIR op per spec, each op's location text, and host callbacks by index.

    `beside` are modules that hold ops which passes made; an op is good as long as its module is.
    """

    def __init__(
        self,
        module: ir.Module,
        representatives: list[ir.Operation | None],
        op_source: list[ir.Operation | None],
        call_site: list[ir.Operation | None],
        callbacks: Sequence[HostCallback] = (),
        beside: Sequence[ir.Module] = (),
    ):
        self.module, self.representatives = module, representatives
        self.callbacks, self._beside = tuple(callbacks), tuple(beside)
        self._op_source, self._call_site = op_source, call_site

    def kept(self, ops: Sequence[bool], specs: list[int]) -> Source:
        """Of the ops that are True in `ops`, and of the specs that are left."""
        op_source, call_site = (list(compress(of_op, ops)) for of_op in (self._op_source, self._call_site))
        return self._with([self.representatives[s] for s in specs], op_source, call_site)

    def with_copies(self, specs: Sequence[int]) -> Source:
        """With one more spec for each of `specs`, made from the same MLIR op."""
        more = [self.representatives[s] for s in specs]
        return self._with([*self.representatives, *more], self._op_source, self._call_site)

    def rewritten(
        self, like: Sequence[tuple[int, int]], more: Sequence[ir.Operation | None], beside: Sequence[ir.Module] = ()
    ) -> Source:
        """Of ops (that come from where an op does, and are a spec's representative, or that very op where it is -1).

        `more` are the representatives of further specs, and `beside` the modules that hold those.
        """
        known = [*self.representatives, *more]
        op_source = [(known[spec] if spec >= 0 else None) or self._op_source[op] for op, spec in like]
        return self._with(known, op_source, [self._call_site[op] for op, _ in like], beside)

    def _with(
        self,
        representatives: list[ir.Operation | None],
        op_source: list[ir.Operation | None],
        call_site: list[ir.Operation | None],
        beside: Sequence[ir.Module] = (),
    ) -> Source:
        beside = (*self._beside, *beside)
        return Source(self.module, representatives, op_source, call_site, self.callbacks, beside)

    @property
    def op_count(self) -> int:
        """How many ops it knows."""
        return len(self._op_source)

    def source_of(self, op: int) -> ir.Operation | None:
        """The MLIR op that op number `op` was made from."""
        return self._op_source[op]

    def where(self, op: int) -> str:
        """Location of op number `op` ("train.py:12 jit(step)/dense"), empty if the module has none.

        An op of a function that carries no line of its own gets the line of the outermost call it was inlined for.
        """
        source, site = self._op_source[op], self._call_site[op]
        if source is None:
            return ""
        own = describe_location(source.location)
        if site is None or ".py:" in own:
            return own
        return f"{describe_location(site.location)}/{own}".rstrip("/")


def describe_location(location: ir.Location) -> str:
    """A location as `file:line scope`; empty where unknown.

    The line is the innermost of the user's own: the first frame that is neither of an installed package nor of
    autopart, or the innermost of all where there is none. The scope names modules, as "jit(step)/Encoder/dot_general".
    """
    text = str(location)
    if "unknown" in text[:12]:
        return ""
    scope = next((q for q in text.split('"')[1::2] if not q.endswith(".py")), "")
    frames = _FRAME.findall(text)
    if not frames:
        return scope
    file, line = next((frame for frame in frames if not is_of_package(frame[0])), frames[0])
    return f"{file}:{line} {scope}".strip()


def is_of_package(file: str) -> bool:
    """True if a file is of autopart or of an installed package, not of the user's own."""
    return "site-packages" in file or "dist-packages" in file or file.startswith(_OWN)
