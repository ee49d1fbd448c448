"""Does a child that is forked while a thread of its parent works do its own work?"""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Callable

import pytest
from numba.core.compiler_lock import global_compiler_lock

from autopart.api.jitted.kept import Kept
from autopart.base.own_lock import OwnLock

SECONDS = 20
"""How long a child that hangs is waited for."""


def exit_code_of_child(work: Callable[[], bool]) -> int:
    """0 where a forked child finds that `work()` is True; 14 where it hangs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # jax and Python warn of forks beside threads
        pid = os.fork()
    if pid == 0:
        signal.alarm(SECONDS)
        os._exit(0 if work() else 1)
    return os.waitpid(pid, 0)[1]


@pytest.fixture
def held():
    """held(lock): a thread holds the lock until the test is over."""
    over, threads = threading.Event(), list[threading.Thread]()

    def hold(lock):
        holds = threading.Event()

        def run():
            with lock:
                holds.set()
                over.wait()

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        holds.wait()

    yield hold
    over.set()
    for thread in threads:
        thread.join()


def test_a_value_that_a_thread_of_the_parent_was_making_is_made_in_the_child():
    kept, makes, over = Kept(2), threading.Event(), threading.Event()

    def slowly():
        makes.set()
        over.wait()
        return "of the parent"

    thread = threading.Thread(target=kept.get, args=("a", slowly))
    thread.start()
    makes.wait()
    assert exit_code_of_child(lambda: kept.get("a", lambda: "of the child") == "of the child") == 0
    over.set()
    thread.join()
    assert kept.get("a", lambda: "made twice") == "of the parent"


@pytest.mark.parametrize("lock", [OwnLock(), global_compiler_lock], ids=["ours", "of Numba's compiler"])
def test_a_lock_that_a_thread_of_the_parent_holds_is_free_in_the_child(lock, held):
    def takes() -> bool:
        with lock:
            return True

    held(lock)
    assert exit_code_of_child(takes) == 0


def test_the_parents_thread_goes_on_holding_its_lock(held):
    lock = OwnLock()
    held(lock)
    assert exit_code_of_child(lambda: True) == 0
    assert lock._lock.acquire(timeout=0.01) is False
