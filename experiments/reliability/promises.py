"""What is promised, and the tests that hold it: pytest runs once per mark, and each row counts its own outcomes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
OUTCOMES = ("passed", "failed", "skipped")


@dataclass(frozen=True)
class Promise:
    """A sentence, the file or folder of tests that holds it, and the pytest mark of those to run ("": the default)."""

    text: str
    tests: str
    mark: str = ""


ALL = "slow or not slow"

PROMISES = (
    Promise("Each tile mapping of each op is true, and none that is conceivable is missing", "tests/ops", ALL),
    Promise("Whole models keep their numbers on eight devices", "tests/numerics"),
    Promise(
        "Ops with indices keep their numbers before and behind slices: the smallest grid",
        "tests/numerics/test_indices_meet_slices.py",
    ),
    Promise(
        "Every index position, tile and kind of op, on 2, 4 and 8 devices, at both levels of optimisation",
        "tests/numerics/test_indices_meet_slices.py",
        "slow",
    ),
    Promise("Host callbacks run, once, and never end the process", "tests/numerics/test_host_callbacks.py"),
    Promise(
        "A mesh of another platform runs here, or the call that cannot is named", "tests/numerics/test_platforms.py"
    ),
    Promise("Modules are exported whole: regions, and the functions that they call", "tests/lowering"),
    Promise("Axes that divide nothing are reported", "tests/api/test_flop_divided.py"),
    Promise("Gathers that nobody asked for are reported", "tests/api/test_gathered.py"),
    Promise(
        "A bad argument of any public function is an error that says what is legal",
        "tests/errors/test_public_surface.py",
        ALL,
    ),
    Promise(
        "A program file that is too large, too deep or too slow to read is an error",
        "tests/errors/test_program_files.py",
    ),
    Promise("A damaged program file is an error, never a crash", "tests/errors/test_damaged_modules.py"),
    Promise("A name in a file never becomes code, nor a line of its own", "tests/errors/test_hostile_names.py"),
    Promise("A worker that dies, stops or is slow costs time, not the answer", "tests/search/test_faults.py"),
    Promise("The same, for every fault at every moment", "tests/search/test_faults.py", "slow"),
    Promise("Ray that autopart starts listens on the loopback alone", "tests/search/test_ray.py", "slow"),
    Promise("Memory stays flat over thousands of evaluations", "tests/search/test_large_searches.py"),
    Promise(
        "Every optimizer keeps its promises, with any number of workers", "tests/search/test_optimizer_contract.py"
    ),
    Promise("A torn or foreign record is reported, and the search goes on", "tests/search/test_records_and_cache.py"),
    Promise("An altered record or cached result is reported, not obeyed", "tests/search/test_altered_files.py"),
    Promise("Two writers of one records file tear no line", "tests/search/test_altered_files.py", "slow"),
    Promise("A Ray worker that dies is replaced, and nothing is lost", "tests/search/test_executors.py", "slow"),
    Promise("Redistribution plans are optimal, and keep the array", "tests/redistribution"),
)

NOT_RUN = [asdict(promise) | {"absent": "not run yet"} for promise in PROMISES]
"""The rows before any run."""


def run(seconds: float, last: Sequence[dict[str, Any]] = (), word: str = "") -> list[dict[str, Any]]:
    """One row per promise: the promise, its tests, how many passed and failed, or why there are no counts.

    With a word, the promises whose tests have it in their path are run; the others keep their rows of `last`.
    """
    wanted = [p for p in PROMISES if word in p.tests]
    outcomes = {
        mark: run_tests([p for p in wanted if p.mark == mark], seconds) for mark in sorted({p.mark for p in wanted})
    }
    before = {(row["tests"], row["mark"]): row for row in (*NOT_RUN, *last)}
    return [asdict(p) | row(p, outcomes[p.mark]) if p in wanted else before[p.tests, p.mark] for p in PROMISES]


def row(promise: Promise, outcomes: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """{"passed": n, "failed": n, "skipped": n} of the outcomes that belong to a promise."""
    if not (ROOT / promise.tests).exists():
        return {"absent": "these tests are not in this tree"}
    module = promise.tests.removesuffix(".py").replace("/", ".")
    count = Counter(outcome for name, outcome in outcomes if f"{name}.".startswith(f"{module}."))
    return {outcome: count[outcome] for outcome in OUTCOMES} if count else {"absent": "not done within its time limit"}


def run_tests(promises: Sequence[Promise], seconds: float) -> list[tuple[str, str]]:
    """(dotted name of its file or class, outcome) of each test of promises of one mark; what pytest reached in time."""
    mark, paths = promises[0].mark, [p.tests for p in promises if (ROOT / p.tests).exists()]
    kept = [p for p in paths if not any(p.startswith(f"{other}/") for other in paths)]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        options = ["-q", "-p", "no:cacheprovider", "-n", "2", "--dist", "loadgroup", f"--junitxml={report}"]
        command = [sys.executable, "-m", "pytest", *kept, *options, *(["-m", mark] if mark else [])]
        print(f"  pytest {' '.join(kept)}" + (f" -m {mark}" if mark else ""), flush=True)
        try:
            subprocess.run(command, cwd=ROOT, capture_output=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            return []
        return outcomes_in(report) if report.exists() else []


def outcomes_in(report: Path) -> list[tuple[str, str]]:
    """(dotted name of its file or class, outcome) of each test in a JUnit report."""
    found = []
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        found.append((case.get("classname", ""), outcome))
    return found
