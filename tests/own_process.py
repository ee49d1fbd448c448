"""What a process of its own says: of programs that register ops, which all tests of a process would have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any


def said_by(code: str) -> Any:
    """What the code prints last, as JSON, in a new process on CPU devices."""
    given = os.environ | {"JAX_PLATFORMS": "cpu"}
    run = subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, text=True, check=True)
    return json.loads(run.stdout.splitlines()[-1])
