"""Windows that slide over one dim: when does a slice of the input yield its slice of the output, alone?

    stride 2, size 2        |ab|cd|  |ef|gh|        windows do not overlap and none crosses a slice: tiles
    stride 1, size 2        |ab|bc|cd|de ...        windows cross: a slice reads a halo of the next one

Convolution, reduce_window and select_and_scatter ask this for each of their dims.
"""

from __future__ import annotations

from dataclasses import dataclass

from autopart.core.stretch import Stretch

MOST_HALO = 0.5
"""Share of a dim that a slice may read of others: windows about as long as the dim would bring it to every device."""


@dataclass(frozen=True)
class Window:
    """One dim: sizes of input, window, output; stride, padding, dilations; whether the window is read backwards."""

    size: int
    window: int
    out: int
    stride: int = 1
    low: int = 0
    high: int = 0
    dilation: int = 1
    window_dilation: int = 1
    reversed: bool = False

    @property
    def tiles(self) -> bool:
        """Each slice of the input yields its slice of the output, alone."""
        if self.dilation == 1:
            reach = self._reach(self.window)
            return self.low == 0 and self.high <= 0 and reach <= self.stride and self.size == self.stride * self.out
        inside = self.window_dilation == 1 and self.window - 1 <= self.low <= self.dilation - 1
        return self.stride == 1 and inside and self.out == self.size * self.dilation

    @property
    def extent(self) -> int:
        """How many slices `tiles` allows."""
        return min(self.size, self.out)

    @property
    def covers(self) -> bool:
        """Slices of input and window together yield parts of the whole output, to be summed."""
        plain = self.stride == 1 and self.dilation == 1 and not self.reversed and self.low == 0
        return plain and self.size == self.window * self.window_dilation and -self.window_dilation < self.high <= 0

    @property
    def stays_inside(self) -> bool:
        """No window reads padding."""
        return self.low <= 0 and self.high <= 0 and self.dilation == 1

    @property
    def rows(self) -> Stretch | None:
        """What outputs read of the input, if that is worth an exchange."""
        return self._worth(Stretch(self.out, self.low, self.stride, self._reach(self.window), self.dilation))

    @property
    def parts(self) -> Stretch | None:
        """What places of the window read of the input, whose products are summed, if that is worth an exchange."""
        back = self.reversed * (self.window - 1) * self.window_dilation
        stride = -self.window_dilation if self.reversed else self.window_dilation
        reach = (self.out - 1) * self.stride + 1
        return self._worth(Stretch(self.window, self.low - back, stride, reach, self.dilation))

    def _reach(self, places: int) -> int:
        return (places - 1) * self.window_dilation + 1

    def _worth(self, stretch: Stretch) -> Stretch | None:
        halo = stretch.reach - abs(stretch.stride)
        return stretch if halo <= MOST_HALO * self.size * self.dilation else None
