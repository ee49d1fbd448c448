"""Is a Ray that autopart starts closed to the network, and gone afterwards? Is a missing Ray an error before long?"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from autopart.search.contract import run
from autopart.search.execution.executor import WorkerError

pytest.importorskip("ray")

from autopart.search.execution.ray import Ray

LISTENS = "0A"


@dataclass(frozen=True)
class Doubles:
    """A task for a worker that needs no program; a job "environment" asks for Ray's settings there."""

    def pickled(self, dumps) -> bytes:
        return dumps(self)

    def worker(self):
        return self

    def run(self, job):
        return os.environ.get("RAY_AUTH_MODE") if job == "auth" else 2 * job


def in_session(session: int) -> list[int]:
    """Processes of an operating system's session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                state, _, _, its, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(its) == session and state != "Z":
                    found.append(int(entry.name))
    return found


def sockets_of(pid: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                target = os.readlink(link)
                if target.startswith("socket:["):
                    found.add(target[8:-1])
    return found


def listening(sockets: set[str]) -> list[str]:
    """Addresses, in the kernel's hexadecimal, on which some of the sockets listen."""
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == LISTENS and inode in sockets:
                found.append(local.split(":")[0])
    return found


def is_loopback(address: str) -> bool:
    """127.x.x.x, that as an IPv6 address, or ::1; each word of four bytes is in the machine's order."""
    is_mapped = address[-2:] == "7F" and address[:-8] in ("", "0" * 16 + "FFFF0000")
    return is_mapped or address == "0" * 24 + "01000000"


@pytest.mark.slow
def test_a_ray_of_our_own_listens_on_the_loopback_only_and_ends_with_the_session(monkeypatch):
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    session = Ray(1).start(Doubles())
    try:
        assert dict(session.run([1, 2, "auth"], float("inf"))) == {0: 2, 1: 4, 2: "token"}
        relay = session._crew._relay.pid
        processes = in_session(relay)
        assert len(processes) >= 4
        addresses = listening(set().union(*map(sockets_of, processes)))
        assert len(addresses) >= 3
        assert all(map(is_loopback, addresses)), addresses
    finally:
        session.close()
    until = time.monotonic() + 15
    while in_session(relay) and time.monotonic() < until:
        time.sleep(0.1)
    assert in_session(relay) == []


@pytest.mark.parametrize(("address", "expected"), [
    ("00000000", False), ("0100007F", True), ("0A00007F", True), ("020200C0", False),
    ("0" * 32, False), ("0000000000000000FFFF00000100007F", True), ("0000000000000000FFFF0000020200C0", False),
    ("0" * 24 + "01000000", True),
])  # fmt: skip
def test_loopback_addresses_are_told_from_others(address, expected):
    assert is_loopback(address) == expected


@pytest.mark.slow
def test_an_address_where_no_ray_is_is_an_error_before_long():
    began = time.monotonic()
    with pytest.raises(WorkerError, match=r"no Ray answers at 127\.0\.0\.1:1"):
        run("greedy", executor=Ray(1, address="127.0.0.1:1"))
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("address", ["", 6379])
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(WorkerError, match="Ray: address is"):
        Ray(address=address)
