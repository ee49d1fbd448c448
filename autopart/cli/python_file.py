"""A Python file where a program is asked for: which of its functions may be meant. The file is not run.

autopart partition train.py        ArgumentError: train.py is Python: a function in it says what to partition
                                     try  train.py:example
"""

from __future__ import annotations

import ast
from pathlib import Path

from autopart.base.errors import ArgumentError


def check_not_python(text: str) -> None:
    """Raises `ArgumentError` where a Python file is given without the name of a function in it."""
    path = Path(text)
    if path.suffix == ".py" and path.is_file():
        functions = without_arguments(path.read_bytes()) or ["FUNCTION"]
        raise ArgumentError(
            f"{text} is Python: a function in it says what to partition",
            hint=" or ".join(f"{text}:{name}" for name in functions[:3]),
        )


def without_arguments(code: bytes) -> list[str]:
    r"""The functions of a Python file that can be called without arguments, best first. The file is not run.

    >>> without_arguments(b"def step(x): ...\ndef example(): ...")
    ['example']
    """
    try:
        body = ast.parse(code).body
    except (SyntaxError, ValueError):
        return []
    functions = [node for node in body if isinstance(node, ast.FunctionDef) and not _needs_arguments(node.args)]
    return [node.name for node in sorted(functions, key=lambda node: node.name != "example")]


def _needs_arguments(arguments: ast.arguments) -> bool:
    positional = len(arguments.posonlyargs) + len(arguments.args)
    return positional > len(arguments.defaults) or None in arguments.kw_defaults
