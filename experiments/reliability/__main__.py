"""Measures reliability and writes the page about it.

python -m experiments.reliability                     5,000 random programs, then the tests of each promise
python -m experiments.reliability --cases 200         fewer programs
python -m experiments.reliability --only programs     programs alone; the promises' last figures stay
python -m experiments.reliability --tests faults         promises whose tests are in files named so
python -m experiments.reliability --only page         docs/reliability.md from the last figures
"""

from __future__ import annotations

import argparse
import datetime
import json
from pathlib import Path
from typing import Any

from experiments.reliability import campaign, page, promises

RESULTS = Path(__file__).with_name("results.json")
EMPTY: dict[str, Any] = {"date": "", "programs": campaign.NOTHING, "promises": promises.NOT_RUN}
PARTS = ("programs", "promises", "page")


def main() -> None:
    parser = argparse.ArgumentParser(prog="experiments.reliability")
    parser.add_argument("--cases", type=int, default=5000, help="random programs (default 5000)")
    parser.add_argument("--workers", type=int, default=2, help="child processes (default 2)")
    parser.add_argument("--batch-seconds", type=float, default=300, help="limit for ten programs (default 300)")
    parser.add_argument("--test-seconds", type=float, default=3600, help="limit per mark of tests (default 3600)")
    parser.add_argument("--only", choices=PARTS, help="one part; the other's last figures stay")
    parser.add_argument("--again", action="store_true", help="of the programs, those that failed last time, once more")
    parser.add_argument("--tests", metavar="WORD", help="the promises with this word in their tests' path, and no more")
    options = parser.parse_args()
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else EMPTY
    if options.again:
        results["programs"] = campaign.run_again(results["programs"], options.batch_seconds)
    elif options.only in (None, "programs") and not options.tests:
        print(f"{options.cases:,} random programs", flush=True)
        results["programs"] = campaign.run(options.cases, options.workers, options.batch_seconds)
    if options.only in (None, "promises") and not options.again:
        print("promises", flush=True)
        results["promises"] = promises.run(options.test_seconds, results["promises"], options.tests or "")
    if options.only != "page":
        results["date"] = datetime.date.today().isoformat()
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    page.write(results)
    report(results)


def report(results: dict[str, Any]) -> None:
    """Prints the figures, and each failure with its seed."""
    programs = results["programs"]
    print(", ".join(f"{k} {v:,}" for k, v in programs.items() if isinstance(v, (int, float))))
    for failure in programs["failures"]:
        print(f"program {failure['seed']}: {failure['kind']}: {failure['message'].splitlines()[:1]}")
    for promise in results["promises"]:
        counted = promise.get("absent") or f"{promise['passed']} passed, {promise['failed']} failed"
        print(f"{promise['tests']}: {counted}")


if __name__ == "__main__":
    main()
