"""The environments in which rows run: a virtual environment for each list in `requirements/`, never the project's own.

Packages that pull in another jax, or half the world, stand below the line `# no deps` of a list, and come without what
they ask for.
"""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LISTS = Path(__file__).parent / "requirements"
GROUPS = tuple(sorted(path.stem for path in LISTS.glob("*.txt")))
ALONE = "# no deps"


def environment(group: str) -> Path:
    """Where the environment of a list is."""
    return ROOT / (".venv-strangers" if group == "oldest" else f".venv-strangers-{group}")


def install(group: str) -> None:
    """Makes the environment by this Python, one package after the other; prints those that cannot be had."""
    folder = environment(group)
    if not folder.exists():
        venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q"]
    together, _, alone = (LISTS / f"{group}.txt").read_text().partition(ALONE)
    subprocess.run([*pip, *_packages(together), "-e", str(ROOT)], check=True)
    missing = [p for p in _packages(alone) if subprocess.run([*pip, "--no-deps", p], check=False).returncode]
    if missing:
        print(f"not installed, and neither are their rows: {', '.join(missing)}")


def _packages(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]
