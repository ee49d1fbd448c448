"""The types that the kernels of estimates and searches are called with, so that they can be compiled before a call.

    {"records": {"Record 1": [["kind", "int8", 0], ["subject", "int32", 4], ..., 64]},       fields, bytes
     "tuples":  {"autopart....kernels.kernel_graph:KernelGraph": ["Record 1 1d C", "int64 1d C", ...]},
     "kernels": {"autopart....links.combine:_combine": ["autopart....:KernelGraph", "int64 1d C", ...]}}

A kernel has one signature. `kernel_signatures.json` is what `ap.warmup()` calls, written by
`python -m tests.core.test_kernel_signatures`, which as a test holds it to that.
"""

from __future__ import annotations

import gc
import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numba.core import types
from numba.np.numpy_support import as_dtype, from_dtype

from autopart.base.jit.kernel_compiler import KernelDispatcher

FILE = Path(__file__).with_name("kernel_signatures.json")

Signature = tuple[Any, ...]
"""Numba's types of a kernel's arguments."""

Word = str | list["Word"]
"""What a type is called in the file; a tuple's types."""


def known_signatures() -> dict[KernelDispatcher, Signature]:
    """Those of the file; none where it names what is no more, since a kernel has changed after it was written."""
    try:
        table = json.loads(FILE.read_text())
        return {_named(name): tuple(_type(word, table) for word in words) for name, words in table["kernels"].items()}
    except (OSError, ImportError, AttributeError):
        return {}


def signatures_in_use() -> str:
    """The file's text, of the kernels that this process has called."""
    table: dict[str, dict[str, Any]] = {"records": {}, "tuples": {}, "kernels": {}}
    called = [k for k in gc.get_objects() if isinstance(k, KernelDispatcher) and k.overloads]
    for kernel in sorted(called, key=_name):
        if _name(kernel).startswith("autopart."):
            (signature,) = kernel.overloads
            table["kernels"][_name(kernel)] = [_word(each, table) for each in signature]
    parts = [f'"{part}": {{\n{_lines(rows)}\n}}' for part, rows in table.items()]
    return "{" + ",\n".join(parts) + "}\n"


def _lines(rows: dict[str, Any]) -> str:
    return ",\n".join(f" {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())


def _name(kernel: Any) -> str:
    function = getattr(kernel, "py_func", kernel)
    return f"{function.__module__}:{function.__qualname__}"


def _named(name: str) -> Any:
    module, within = name.split(":")
    return getattr(importlib.import_module(module), within)


def _word(type_: Any, table: dict[str, dict[str, Any]]) -> Word:
    """The word for a type; records and named tuples are added to the table."""
    if isinstance(type_, (types.Tuple, types.UniTuple)):
        return [_word(each, table) for each in type_.types]
    if isinstance(type_, (types.NamedTuple, types.NamedUniTuple)):
        name = _name_of_class(type_)
        table["tuples"][name] = [_word(each, table) for each in type_.types]
        return name
    if isinstance(type_, types.Array):
        element = _record(type_.dtype, table) if isinstance(type_.dtype, types.Record) else str(type_.dtype)
        return f"{element} {type_.ndim}d {type_.layout}" + ("" if type_.mutable else " fixed")
    return str(type_)


def _name_of_class(type_: Any) -> str:
    return f"{type_.instance_class.__module__}:{type_.instance_class.__qualname__}"


def _record(type_: types.Record, table: dict[str, dict[str, Any]]) -> str:
    fields = [[name, str(type_.typeof(name)), type_.offset(name)] for name, _ in type_.members]
    found = [*fields, type_.size]
    for name, other in table["records"].items():
        if other == found:
            return name
    name = f"Record {len(table['records']) + 1}"
    table["records"][name] = found
    return name


def _type(word: Word, table: dict[str, dict[str, Any]]) -> Any:
    """The type that a word stands for."""
    if isinstance(word, list):
        return types.Tuple.from_types([_type(each, table) for each in word])
    if word in table["tuples"]:
        fields = [_type(each, table) for each in table["tuples"][word]]
        alike = len(set(fields)) == 1
        return (
            types.NamedUniTuple(fields[0], len(fields), _named(word))
            if alike
            else types.NamedTuple(fields, _named(word))
        )
    if "d " in word:
        element, dims, layout, *fixed = word.rsplit(" ", 3) if word.endswith(" fixed") else word.rsplit(" ", 2)
        return types.Array(_element(element, table), int(dims[:-1]), layout, readonly=bool(fixed))
    return getattr(types, word)


def _element(word: str, table: dict[str, dict[str, Any]]) -> Any:
    if word not in table["records"]:
        return getattr(types, word)
    *fields, size = table["records"][word]
    names, formats, offsets = zip(*fields, strict=True)
    formats = [as_dtype(getattr(types, each)) for each in formats]
    layout: Any = {"names": names, "formats": formats, "offsets": offsets, "itemsize": size}
    return from_dtype(np.dtype(layout, align=True))
