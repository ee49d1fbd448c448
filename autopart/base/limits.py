"""How much of this machine a program file may use before `ap.load` refuses it.

20 functions that each call the next twice: 4 kB of text, 1,048,576 ops      within the limits
40 functions that each call the next twice: 8 kB of text, 10^12 ops          ProgramError, at once
3 MB of gzip that unpack to 3 GB                                             ProgramError after `max_bytes`
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from autopart.base.arguments import check_fields, number, whole
from autopart.base.errors import ProgramError


@dataclass(frozen=True)
class Limits:
    """What `ap.load` accepts. Raises `ArgumentError` where a limit is not a positive number.

    max_ops      ops after inlining of calls, each call counted as one more (default 4 million)
    max_bytes    bytes of the file after decompression (default 1 GB)
    max_depth    regions inside regions, and calls inside calls (default 100)
    max_seconds  seconds of parsing and importing, start-up of a child process not counted (default 120)

    MLIR's own parser cannot be interrupted inside this process, so there `max_seconds` holds between its steps; in the
    child process that checks untrusted bytecode it holds strictly, and memory is limited to 4 GB + 8 * `max_bytes`.
    """

    max_ops: int = 4_000_000
    max_bytes: int = 1_000_000_000
    max_depth: int = 100
    max_seconds: float = 120.0

    def __post_init__(self) -> None:
        check_fields(self, max_ops=whole(1), max_bytes=whole(1), max_depth=whole(1), max_seconds=number(0, above=True))


class Gauge:
    """Measures one import against its limits; without limits it never raises."""

    def __init__(self, limits: Limits | None):
        self.limits = limits
        self._end = time.monotonic() + limits.max_seconds if limits else math.inf

    def check_time(self) -> None:
        """Raises `ProgramError` once `max_seconds` have passed."""
        if self.limits is not None and time.monotonic() > self._end:
            raise ProgramError(
                f"the program was not imported in {self.limits.max_seconds:g} s", hint="ap.Limits(max_seconds=...)"
            )

    def check_ops(self, count: int) -> None:
        """Raises `ProgramError` if `count` is more than `max_ops`."""
        if self.limits is not None and count > self.limits.max_ops:
            shown = f"{count:,}" if count < 10**15 else f"about 10^{len(str(count)) - 1}"
            raise ProgramError(
                f"the program has {shown} ops once its calls are inlined",
                why=f"the limit is {self.limits.max_ops:,}",
                hint="ap.Limits(max_ops=...)",
            )

    def check_depth(self, depth: int, what: str) -> None:
        """Raises `ProgramError` if `depth` is more than `max_depth`; `what` says of what."""
        if self.limits is not None and depth > self.limits.max_depth:
            raise ProgramError(
                f"the program nests {what} more than {self.limits.max_depth} deep", hint="ap.Limits(max_depth=...)"
            )
