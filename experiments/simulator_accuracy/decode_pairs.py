"""Decode steps under their manual schedules (`experiments/models/decode_steps.py`)."""

from __future__ import annotations

from dataclasses import dataclass

import autopart as ap
from experiments.models.decode_steps import DECODE_STEPS


@dataclass(frozen=True)
class DecodePair:
    """A decode step, and where it is compiled for."""

    step: str

    @property
    def model(self) -> str:
        return f"decode {self.step}"

    @property
    def on(self) -> tuple[str, ap.Mesh]:
        return DECODE_STEPS[self.step]().on

    @property
    def name(self) -> str:
        return f"{self.model} {self.on[0]}"

    def lower(self) -> ap.Lowered:
        return DECODE_STEPS[self.step]().lower()


DECODE_PAIRS = tuple(map(DecodePair, DECODE_STEPS))
