"""Values by number while regions are emitted; a region's values are forgotten when it ends.

begin main        %0 %1
  begin branch    %0 %1 %2        all three may be read here: they dominate what is emitted next
  end branch      %0 %1           %2 may not be read any more
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from autopart.core.doors.jax_internals import ir


class ScopedValues(dict[int, ir.Value]):
    """What is in it dominates the place where ops are emitted."""

    @contextmanager
    def region(self) -> Generator[None]:
        """A region: what it defines is forgotten when it ends. A dict keeps its order, so that is what came last."""
        outside = len(self)
        yield
        while len(self) > outside:
            self.popitem()
