"""What compilers made of programs, kept in a file of JSON by the hash of what each was given.

    KEPT = CompiledPrograms(Path(__file__).with_name("compiled.json"), ("jax", "libtpu"))
    key = KEPT.key(lowered, "v3:4x4")
    if key not in KEPT.read(): KEPT.add(key, {"peak_bytes": ...})

A program whose text, topology and compiler are known need never be compiled again.
"""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import jax


class CompiledPrograms(NamedTuple):
    """The file, and the packages whose versions say which compiler it was."""

    path: Path
    packages: tuple[str, ...]

    def read(self) -> dict[str, Any]:
        """Key -> figures of every program that was compiled."""
        return json.loads(self.path.read_text()) if self.path.exists() else {}

    def add(self, key: str, found: dict[str, Any]) -> None:
        """Keeps the figures of a program."""
        text = json.dumps({**self.read(), key: found}, indent=None).replace('}, "', '},\n"')
        self.path.write_text(text + "\n")

    def versions(self) -> dict[str, str]:
        """Of the compiler; of jax alone where it is not there."""
        try:
            return {package: version(package) for package in self.packages}
        except PackageNotFoundError:
            return {"jax": version("jax")}

    def key(self, lowered: jax.stages.Lowered, topology: str) -> str:
        """What the compiler is given, as a number."""
        digest = hashlib.sha256(json.dumps([topology, self.versions()]).encode())
        digest.update(lowered.as_text().encode())
        return digest.hexdigest()[:24]
