"""Do several processes compare their plans, and do what one of them found?"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import autopart as ap
from autopart.api.plan import hosts
from autopart.api.plan.hosts import Processes, by_the_first, check_same


class Shared:
    """A key-value store as `jax.distributed` has one, for threads in the place of processes."""

    def __init__(self):
        self._values, self._changed = {}, threading.Condition()

    def key_value_set(self, key, value):
        with self._changed:
            assert key not in self._values, "a key is set once"
            self._values[key] = value
            self._changed.notify_all()

    def blocking_key_value_get(self, key, timeout_in_ms):
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._values, timeout_in_ms / 1000):
                raise RuntimeError(f"DEADLINE_EXCEEDED: {key}")
            return self._values[key]


def at_once(count, work):
    """`work` on each of so many processes; what each returned or raised."""
    store = Shared()

    def run(number):
        try:
            return work(Processes(store, number, tuple(range(count))))
        except ap.PlanError as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def compare(digests):
    def work(processes):
        mine = digests[processes.me]
        return check_same(processes, mine, f"plan {mine}", lambda theirs: [f"{theirs} -> plan {mine}"])

    return at_once(len(digests), work)


def test_equal_plans_pass():
    assert compare(["a", "a", "a"]) == [None, None, None]


def test_another_plan_is_an_error_on_every_process_and_the_other_says_what_differs():
    found = compare(["a", "a", "b"])
    assert all(isinstance(error, ap.PlanError) for error in found)
    assert "1 of 3 processes partitioned the program in another way" in str(found[0])
    assert "process 2 has another one than process 0" in str(found[1])
    assert "plan a -> plan b" in str(found[2])
    assert "plan a -> plan b" not in str(found[1])


def test_programs_are_compared_one_after_the_other():
    def work(processes):
        return [check_same(processes, digest, "", lambda _: []) for digest in "abc"]

    assert at_once(2, work) == [[None] * 3] * 2


def test_what_the_first_made_is_what_all_have():
    made = at_once(3, lambda processes: by_the_first(processes, ["p"], lambda: [processes.me, "found"]))
    assert made == [[0, "found"]] * 3


def test_an_error_of_the_first_reaches_all():
    def fails():
        raise ap.PlanError("nothing is found")

    found = at_once(2, lambda processes: by_the_first(processes, ["p"], fails))
    assert [str(error) for error in found] == ["nothing is found", "process 0 failed: nothing is found"]


def test_another_program_is_an_error_where_it_is():
    found = at_once(2, lambda processes: by_the_first(processes, [f"program {processes.me}"], list))
    assert found[0] == []
    assert "it has program 0, and this process program 1" in str(found[1])


def test_a_process_that_does_not_come_is_waited_for_no_longer_than_told(monkeypatch):
    monkeypatch.setattr(hosts, "WAIT_S", 0.01)
    with pytest.raises(ap.PlanError, match="process 1 did not come to the same place"):
        check_same(Processes(Shared(), 0, (0, 1)), "a", "", lambda _: [])


def test_one_process_asks_nobody():
    assert hosts.all_processes() is None


ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("two_hosts.py")


def two_hosts(case: str) -> list[tuple[int, str]]:
    """(exit code, output) of two processes of one program."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu",
                   "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}  # fmt: skip
    started = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), case, str(number), str(port)],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for number in range(2)
    ]  # fmt: skip
    texts = [process.communicate(timeout=600)[0] for process in started]
    return [(process.returncode, text) for process, text in zip(started, texts, strict=True)]


@pytest.mark.slow
def test_two_processes_with_one_plan_compute_together():
    for code, text in two_hosts("same"):
        assert code == 0, text
        assert "computed" in text


@pytest.mark.slow
def test_two_processes_with_two_schedules_are_told_before_anything_runs():
    for code, text in two_hosts("different"):
        assert code == 0, text
        assert "1 of 2 processes partitioned the program in another way" in text


@pytest.mark.slow
def test_a_search_with_a_time_limit_runs_on_process_0_alone():
    found = two_hosts("search")
    for code, text in found:
        assert code == 0, text
    plans = [next(line for line in text.splitlines() if line.startswith("plan ")) for _, text in found]
    assert plans[0] == plans[1]
    assert "searched here" in found[0][1]
    assert "searched here" not in found[1][1]
