"""The error of pairwise problems, and how it names a field."""

from __future__ import annotations

from autopart.base.errors import PartitionError

Field = tuple[str | int, ...]


class PairwiseError(PartitionError):
    """A pairwise problem that contradicts itself, a file that holds none, or a start that does not fit one.

    `field` is where in the problem: ("nodes", "costs", 3, 1) is nodes.costs[3][1].
    """

    def __init__(self, what: str, *, field: Field = (), by: str = "", why: str = "", hint: str = ""):
        self.field = field
        super().__init__(f"{dotted(field)} {what}" if field else what, by=by, why=why, hint=hint)

    def blamed_on(self, by: str) -> PairwiseError:
        """The same error, naming what was being done."""
        return self if self.by else PairwiseError(self.what, by=by, why=self.why, hint=self.hint)


def dotted(field: Field) -> str:
    """A field for readers.

    >>> dotted(("nodes", "costs", 3, 1))
    'nodes.costs[3][1]'
    """
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in field)[1:]
