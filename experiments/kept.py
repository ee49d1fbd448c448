"""What an experiment keeps of its last run: `write(RESULTS, figures)`, with the day."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write(path: Path, figures: Mapping[str, Any]) -> None:
    """Writes the figures as JSON, with today as their "date"."""
    dated = {**figures, "date": datetime.date.today().isoformat()}
    path.write_text(json.dumps(dated, indent=1) + "\n")
