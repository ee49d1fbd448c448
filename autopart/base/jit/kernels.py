"""`kernel`: how the hot loops are written, and where compiled ones are kept; `kernel_compiler.py` compiles them.

Kernels take named tuples of arrays and allocate nothing. Numba would still count references to each array of a tuple
at each call of one kernel from another; compiled without its memory runtime it does not, and propagation over a
training step takes 1.4 ms instead of 29 ms. A function that makes an array cannot be a `kernel`: it is an
`allocating_kernel`, or better a Python function that makes the arrays and hands them to a kernel: each way of making
one is a function of Numba's that is compiled as well.

Compiled kernels are kept on disk beside the source, or in $NUMBA_CACHE_DIR; the first time all are compiled at once, by
several processes (`kernels_side_by_side.py`), and a line on stderr says why it takes so long. Numba takes what it finds
there for good if the kernel's own file is unchanged. That is not enough: the machine code holds that of every kernel
that it calls, and an index may name a class that a later version of this package has no more. So what is found is good
only if the files of all kernels that it calls, and the constants that they read, are unchanged too. What cannot be
read, or is damaged (`kernel_files.py`), is compiled anew.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, ParamSpec, TypeVar

from numba.core import event
from numba.core.caching import FunctionCache
from numba.core.compiler_lock import global_compiler_lock

from autopart.base.jit import kernel_compiler, tuples_by_reference
from autopart.base.jit.kernel_compiler import KernelDispatcher, functions_called, wide_signature
from autopart.base.jit.kernel_files import CheckedFiles
from autopart.base.jit.kernels_side_by_side import compile_what_is_missing

UNREADABLE = (
    ImportError,
    AttributeError,
    EOFError,
    pickle.UnpicklingError,
    KeyError,
    ValueError,
    TypeError,
    IndexError,
)
"""What loading an index or a kernel raises that another version has written, or that is damaged."""


class KernelCache(FunctionCache):
    """The compiled versions of one kernel on disk; see the module."""

    def __init__(self, function: Any):
        super().__init__(function)
        self._cache_file = CheckedFiles(self._cache_path, self._impl.filename_base, "")

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled kernel for a signature, or None."""
        self._is_of(kernel_stamp(self._py_func))
        try:
            return super().load_overload(sig, target_context)
        except UNREADABLE:
            self.flush()
            return None

    def has(self, sig: Any, target_context: Any) -> bool:
        """True if the kernel is there for a signature."""
        self._is_of(kernel_stamp(self._py_func))
        try:
            kept = self._cache_file._load_index()  # pyright: ignore[reportPrivateUsage]
        except UNREADABLE:
            return False
        return self._index_key(sig, target_context.codegen()) in kept

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keeps a compiled kernel."""
        self._is_of(kernel_stamp(self._py_func))
        super().save_overload(sig, data)

    def _is_of(self, stamp: str) -> None:
        """What is on disk is good if it was compiled from that."""
        self._cache_file._source_stamp = stamp  # pyright: ignore[reportPrivateUsage]


class KeptKernel(KernelDispatcher):
    """A kernel that is kept on disk."""

    _cache: Any

    has_missed: ClassVar[bool] = False
    """True once this process has looked for a kernel that was not there."""

    def compile(self, sig: Any) -> Any:
        """Compiles the entry, or finds it on disk; at the first miss of the process, after all that are missing.

        Not from within the cache: Numba takes a kernel whose cache it asks for one that is being compiled, and refuses
        to compile those that call it.
        """
        if not KeptKernel.has_missed and not self._cache.has(wide_signature(sig), self.targetctx):
            KeptKernel.has_missed = True
            compile_what_is_missing()
        return super().compile(sig)


P = ParamSpec("P")
R = TypeVar("R")


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: compiled once, kept on disk, without reference counts."""
    return _kept(function, _nrt=False)


def allocating_kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: the same for a function that makes arrays."""
    return _kept(function)


def fast_allocating_kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: the same where the order of sums and the sign of zero do not matter, so that loops become vectors."""
    return _kept(function, fastmath={"nsz", "arcp", "contract", "reassoc"})


def _kept(function: Callable[..., Any], **options: Any) -> Any:
    dispatcher: Any = KeptKernel(function, targetoptions={"nopython": True, "no_cfunc_wrapper": True, **options})
    dispatcher._cache = KernelCache(function)
    return dispatcher


@functools.cache
def kernel_stamp(function: Any) -> str:
    """Hex digest of all that makes a compiled kernel: how, its file, those of the kernels it calls, their constants."""
    digest = hashlib.sha256()
    functions = functions_called(function)
    for path in (
        kernel_compiler.__file__,
        tuples_by_reference.__file__,
        *sorted({f.__code__.co_filename for f in functions}),
    ):
        digest.update(_content(path))
    for f in functions:
        found = {name: f.__globals__.get(name) for name in f.__code__.co_names}
        digest.update(repr([(n, v) for n, v in found.items() if isinstance(v, (bool, int, float, tuple))]).encode())
    return digest.hexdigest()


@functools.cache
def _content(path: str) -> bytes:
    return hashlib.sha256(Path(path).read_bytes()).digest()


class _FirstTime(event.Listener):
    """Says once that kernels of this package are being compiled."""

    def __init__(self) -> None:
        self._said = False

    def on_start(self, event: Any) -> None:
        """A kernel, perhaps somebody else's, is compiled."""
        dispatcher = event.data["dispatcher"]
        if not self._said and dispatcher.py_func.__module__.startswith("autopart."):
            self._said = True
            print(
                "autopart compiles its kernels, once on this machine: up to half a minute", file=sys.stderr, flush=True
            )

    def on_end(self, event: Any) -> None:
        """Nothing to say."""


def _let_go() -> None:
    """In a forked child no thread holds Numba's lock, whoever held it in the parent."""
    global_compiler_lock._lock = threading.RLock()  # pyright: ignore[reportPrivateUsage]


os.register_at_fork(after_in_child=_let_go)
event.register("numba:compile", _FirstTime())  # pyright: ignore
