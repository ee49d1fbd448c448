"""How far off an estimate may be: the interval that nine of ten kept programs of its compiler lie in.

    step 0.74 to 1.24 times, peak 0.94 to 1.39 times on 9 of 10 of 84 plans, by XLA's GPU compiler

`intervals.json` has, for each compiler, the quantiles of what it says over what is estimated, of the plans that an
experiment keeps (`python -m experiments.intervals`). A device in a file has the residuals of its calibration besides.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib import resources
from typing import Any

from autopart.base.units import bytes_text, seconds_text
from autopart.costmodel.hardware.device_file import residual_of
from autopart.costmodel.hardware.devices import device

Range = tuple[float, float]


@dataclass(frozen=True)
class Interval:
    """Seconds of a step and bytes of its peak, least and most; None: nobody knows. `by` says what of."""

    step_s: Range | None
    peak_bytes: Range | None
    by: str

    def __str__(self) -> str:
        said = [f"step {seconds_text(self.step_s[0])} to {seconds_text(self.step_s[1])}"] if self.step_s else []
        if self.peak_bytes:
            said.append(f"peak {bytes_text(self.peak_bytes[0])} to {bytes_text(self.peak_bytes[1])}")
        return f"{', '.join(said)} on 9 of 10 of {self.by}"


def interval(name: str, step_s: float, peak_bytes: float) -> Interval | None:
    """That of an estimate for the device `name`; None where nothing is kept of it."""
    kept, off = _kept().get(device(name).compiler), residual_of(name)
    if kept is None and off is None:
        return None
    low, high = kept["step"] if kept else (1.0, 1.0)
    by = [f"{kept['plans']} plans, by {kept['by']}"] if kept else []
    by += [f"{name}'s measurements"] if off is not None else []
    return Interval(
        (step_s * low / (1 + (off or 0.0)), step_s * high * (1 + (off or 0.0))),
        (peak_bytes * kept["peak"][0], peak_bytes * kept["peak"][1]) if kept else None,
        ", and of ".join(by),
    )


@functools.cache
def _kept() -> dict[str, Any]:
    text = resources.files("autopart").joinpath("costmodel/hardware/intervals.json").read_text(encoding="utf-8")
    return json.loads(text)
