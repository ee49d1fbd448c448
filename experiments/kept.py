"""What an experiment keeps of its last run: `write(RESULTS, figures)`, with the day."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write(path: Path, figures: Mapping[str, Any], lines: bool = False) -> None:
    """Writes the figures as JSON, with today as their "date"; with `lines` a line for each row, not for each figure."""
    dated = {**figures, "date": datetime.date.today().isoformat()}
    text = json.dumps(dated).replace('}, "', '},\n"') if lines else json.dumps(dated, indent=1)
    path.write_text(text + "\n")
