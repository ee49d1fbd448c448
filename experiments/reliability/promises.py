"""What is promised, and the tests that hold it: each row is run by pytest, and its outcomes are counted."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
COUNTS = ("tests", "failures", "errors", "skipped")


@dataclass(frozen=True)
class Promise:
    """A sentence, the file or folder of tests that holds it, and the pytest mark of those to run ("": the default)."""

    text: str
    tests: str
    mark: str = ""


PROMISES = (
    Promise("Each tile mapping of each op is true, and none that is conceivable is missing", "tests/ops"),
    Promise("Whole models keep their numbers on eight devices", "tests/numerics"),
    Promise(
        "Ops with indices keep their numbers before and behind slices", "tests/numerics/test_indices_meet_slices.py"
    ),
    Promise("Modules are exported whole: regions, and the functions that they call", "tests/lowering"),
    Promise(
        "A bad argument, name, mesh or budget is an error that says what is legal", "tests/errors/test_bad_input.py"
    ),
    Promise("A damaged program file is an error, never a crash", "tests/errors/test_damaged_modules.py"),
    Promise("A worker that dies, stops or is slow costs time, not the answer", "tests/search/test_faults.py"),
    Promise(
        "Every optimizer keeps its promises, with any number of workers", "tests/search/test_optimizer_contract.py"
    ),
    Promise("A torn, foreign or altered record or cache file is reported", "tests/search/test_records_and_cache.py"),
    Promise("Redistribution plans are optimal, and keep the array", "tests/redistribution"),
)

NOT_RUN = [asdict(promise) | {"absent": "not run yet"} for promise in PROMISES]
"""The rows before any run."""


def run(seconds: float) -> list[dict[str, Any]]:
    """One row per promise: the promise, its tests, how many passed and failed."""
    return [asdict(promise) | run_tests(promise, seconds) for promise in PROMISES]


def run_tests(promise: Promise, seconds: float) -> dict[str, Any]:
    """Runs the tests of one promise; {"passed": n, "failed": n, "skipped": n}, or why there are no counts."""
    if not (ROOT / promise.tests).exists():
        return {"absent": "these tests are not in this tree"}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            promise.tests,
            "-q",
            "-p",
            "no:cacheprovider",
            f"--junitxml={report}",
        ]
        command += ["-m", promise.mark] if promise.mark else []
        print(f"  {promise.tests}", flush=True)
        try:
            subprocess.run(command, cwd=ROOT, capture_output=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            return {"absent": f"not done after {seconds:.0f} s"}
        return counts(report) if report.exists() else {"absent": "pytest wrote no report"}


def counts(report: Path) -> dict[str, int]:
    """Outcomes in a JUnit report."""
    total, failed, errors, skipped = (
        sum(int(suite.get(name, 0)) for suite in ElementTree.parse(report).iter("testsuite")) for name in COUNTS
    )
    return {"passed": total - failed - errors - skipped, "failed": failed + errors, "skipped": skipped}
