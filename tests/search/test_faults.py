"""Does a search survive what happens to its processes, and leave none behind?"""

from __future__ import annotations

from signal import SIGINT, SIGKILL, SIGSTOP

import pytest

from tests.search.faults import Fault, check, inject

FEW = [
    Fault("processes", "start-up", SIGINT, "driver", "KeyboardInterrupt"),
]
"""Run by default."""

MANY = [
    Fault("processes", "evaluation", SIGSTOP, "worker", "best so far", 40, evaluations=0, seconds=2.0),
    *[Fault("processes", "start-up", send, "workers", "same answer") for send in (SIGKILL, SIGSTOP)],
    Fault("processes", "start-up", SIGKILL, "worker", "same answer"),
    Fault("processes", "start-up", SIGSTOP, "worker", "same answer"),
    *[Fault("processes", "evaluation", SIGKILL, "workers", "same answer", n) for n in (1, 2, 20)],
    *[Fault("processes", "evaluation", SIGSTOP, "workers", "same answer", n) for n in (1, 2, 20)],
    Fault("processes", "evaluation", SIGSTOP, "workers", "best so far", 40, evaluations=0, seconds=2.0),
    *[Fault(e, "evaluation", SIGINT, "driver", "best so far", 20) for e in ("serial", "processes", "ray")],
    *[Fault(e, "close", SIGINT, "driver", "best so far") for e in ("serial", "processes", "ray")],
    *[Fault("processes", "close", send, "workers", "same answer") for send in (SIGKILL, SIGSTOP)],
    *[Fault(e, "compile", SIGINT, "driver", "KeyboardInterrupt", n) for e in ("serial", "processes") for n in (2, 9)],
    Fault("ray", "start-up", SIGINT, "driver", "KeyboardInterrupt"),
    *[Fault("ray", "evaluation", SIGKILL, to, "same answer", 10) for to in ("workers", "raylet/raylet", "gcs_server")],
    Fault("ray", "evaluation", SIGKILL, "execution.ray import serve", "same answer", 10),
    Fault("ray", "evaluation", SIGSTOP, "workers", "same answer", 10),
    Fault("ray", "evaluation", SIGSTOP, "workers", "best so far", 40, evaluations=0, seconds=2.0),
    Fault("ray", "close", SIGKILL, "raylet/raylet", "same answer"),
    Fault("ray", "close", SIGSTOP, "workers", "same answer"),
]


@pytest.mark.parametrize("fault", FEW, ids=str)
def test_a_search_ends_as_promised_whatever_happens_to_it(fault, tmp_path):
    check(fault, inject(fault, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("fault", MANY, ids=str)
def test_a_search_ends_as_promised_in_the_long_table(fault, tmp_path):
    fresh = {"NUMBA_CACHE_DIR": str(tmp_path)} if fault.at == "compile" else {}
    check(fault, inject(fault, tmp_path, **fresh))
