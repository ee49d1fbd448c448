"""Compiles the kernels of a machine's first run on all its cores.

    process   misses a kernel, compiles _pass, _time, ...            waits for the others, loads what they have compiled
    worker 1                    imports, compiles propagate_and_tile, _fuse, ...
    worker 2                    imports, compiles fitting_each, layouts, ...

Each takes the next kernel of one list, the longest first, by making a file that no other has made. Kernels meet on
disk, where `KernelCache` keeps them. Of processes that start together, as workers of a cluster do, one compiles and
the others wait. What a worker does not get done, the process compiles when it is called.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

from numba.core.errors import NumbaError

from autopart.base.jit.kernel_compiler import KernelDispatcher, functions_called
from autopart.base.jit.kernel_signatures import known_signatures

MOST_WORKERS = 7
"""More would have nothing to do when the longest kernel is compiled."""

WORTH_IT = 8
"""Kernels that are missing, from which on it takes longer to compile them than to start workers."""

WORKER = "from autopart.base.jit.kernels_side_by_side import compile_in_turn; compile_in_turn({folder!r})"
FOR_ANOTHER = "AUTOPART_COMPILES_FOR_ANOTHER"
"""Set in the environment of workers, which start none of their own."""


def compile_what_is_missing() -> None:
    """Compiles what is not on disk of the kernels whose signatures are known, on several cores."""
    workers = 0 if FOR_ANOTHER in os.environ else min(_cores() - 1, MOST_WORKERS)
    missing = _missing() if workers else []
    if len(missing) < WORTH_IT:
        return
    with _alone(missing[0]), tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        if len(_missing()) < WORTH_IT:
            return
        ours = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "JAX_PLATFORMS": "cpu", FOR_ANOTHER: "1"}
        started = [
            subprocess.Popen(
                [sys.executable, "-c", WORKER.format(folder=folder)], env=os.environ | ours,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
            for _ in range(workers)
        ]  # fmt: skip
        try:
            compile_in_turn(folder)
        finally:
            for worker in started:
                worker.wait()


def compile_in_turn(folder: str) -> None:
    """Compiles one missing kernel after the other, of those that no other process has made a file for."""
    signatures = known_signatures()
    for kernel in sorted(_missing(), key=_size, reverse=True):
        try:
            (Path(folder) / f"{kernel.py_func.__module__}.{kernel.py_func.__qualname__}").touch(exist_ok=False)
        except FileExistsError:
            continue
        with contextlib.suppress(NumbaError):  # it has other types by now, and says what is wrong when it is called
            kernel.compile(signatures[kernel])


def _missing() -> list[KernelDispatcher]:
    """The kernels that are not on disk as they are now."""
    return [kernel for kernel, types in known_signatures().items() if not _cache(kernel).has(types, kernel.targetctx)]


def _cores() -> int:
    """Those that this process may use; not every system says which these are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _size(kernel: Any) -> int:
    """Bytes of Python's code of a kernel, and of the kernels that it calls."""
    return sum(len(function.__code__.co_code) for function in functions_called(kernel.py_func))


def _cache(kernel: Any) -> Any:
    return kernel._cache


@contextlib.contextmanager
def _alone(kernel: KernelDispatcher) -> Generator[None]:
    """While no other process compiles into the folder of this kernel."""
    with (Path(_cache(kernel).cache_path) / "compiling.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
