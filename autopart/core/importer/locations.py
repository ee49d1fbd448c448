"""Where the ops of a program came from: source line and named scope."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from pathlib import Path

from autopart.core.host_callbacks import HostCallback
from autopart.core.jax_internals import ir

OF_OTHERS = ("/site-packages/", "/dist-packages/", str(Path(__file__).parents[2]))
"""Parts of the paths of files that are not the user's: of installed packages, and of this one."""


class Source:
    """Where ops came from: a representative MLIR op per spec, each op's location text, and host callbacks by index."""

    def __init__(
        self,
        module: ir.Module,
        representatives: list[ir.Operation | None],
        op_source: list[ir.Operation | None],
        call_site: list[ir.Operation | None],
        callbacks: Sequence[HostCallback] = (),
    ):
        self.module, self.representatives = module, representatives
        self.callbacks = tuple(callbacks)
        self._op_source, self._call_site = op_source, call_site

    def kept(self, ops: Sequence[bool], specs: list[int]) -> Source:
        """Of the ops that are True in `ops`, and of the specs that are left."""
        return Source(
            self.module,
            [self.representatives[s] for s in specs],
            list(compress(self._op_source, ops)),
            list(compress(self._call_site, ops)),
            self.callbacks,
        )

    def with_copies(self, specs: Sequence[int]) -> Source:
        """With one more spec for each of `specs`, made from the same MLIR op."""
        more = [self.representatives[s] for s in specs]
        return Source(self.module, [*self.representatives, *more], self._op_source, self._call_site, self.callbacks)

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

    Of the calls that lead to the op, the innermost in the user's own code: no installed package's, nor autopart's.
    """
    text = str(location)
    if "unknown" in text[:12]:
        return ""
    quoted = text.split('"')[1::2]
    scope = next((q for q in quoted if not q.endswith(".py")), "")
    files = [i for i, q in enumerate(quoted) if q.endswith(".py")]
    if not files:
        return scope
    file = next((i for i in files if not any(part in quoted[i] for part in OF_OTHERS)), files[0])
    after = text.split('"')[2 * file + 2]
    line = after.lstrip(":").split(":")[0].split(" ")[0]
    return f"{quoted[file]}:{line} {scope}".strip()
