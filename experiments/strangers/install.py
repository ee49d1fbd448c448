"""The environment of rows: a virtual one with the packages of `requirements.txt`, never the project's own.

Each version of Python has its own; packages that ask for a newer one than runs are left out, and so are their rows.

Packages that ask for half the world stand below the line `# no deps`, and come without what they ask for.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("requirements.txt")
ENVIRONMENT = ROOT / f".venv-strangers-{sys.version_info.major}.{sys.version_info.minor}"
ALONE = "# no deps"


def python() -> str:
    """The Python that rows run with: that of the environment, or this one where there is none."""
    made = ENVIRONMENT / "bin" / "python"
    return str(made) if made.exists() else sys.executable


def install() -> None:
    """Makes the environment by this Python; prints the packages that cannot be had."""
    if not ENVIRONMENT.exists():
        venv.create(ENVIRONMENT, with_pip=True)
    pip = [python(), "-m", "pip", "install", "-q"]
    together, _, alone = LIST.read_text().partition(ALONE)
    subprocess.run([*pip, *_packages(together), "-e", str(ROOT)], check=True)
    missing = [p for p in _packages(alone) if subprocess.run([*pip, "--no-deps", p], check=False).returncode]
    if missing:
        print(f"not installed, and neither are their rows: {', '.join(missing)}")


def _packages(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]
