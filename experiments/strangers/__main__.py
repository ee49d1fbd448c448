"""Released models that nothing here was tuned for, each lowered for a TPU's mesh and a GPU's, in a process of its own.

python -m experiments.strangers --install          the packages, in an environment of this Python
python -m experiments.strangers                    all rows that are not kept yet, the table, and results.json
python -m experiments.strangers --only t5 --again  rows whose name contains this, kept or not
python -m experiments.strangers --device h100      on one of the devices
python -m experiments.strangers --table            only the table, from what is kept
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from experiments.strangers.install import install
from experiments.strangers.page import write_page
from experiments.strangers.rows import DEVICES, Kept, run_row

README = Path(__file__).with_name("README.md")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.strangers", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--install", action="store_true", help="make the environment, and end")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--device", choices=DEVICES, help="on this device alone")
    parser.add_argument("--again", action="store_true", help="rows whose result is kept, too")
    parser.add_argument("--limit", type=int, default=300, help="seconds of a process on the CPU, 300 by default")
    parser.add_argument("--table", action="store_true", help="run nothing")
    options = parser.parse_args()
    if options.install:
        install()
        return
    kept = Kept.read()
    for device in [options.device] if options.device else DEVICES:
        for name in [] if options.table else kept.names(options.only):
            if options.again or not kept.ran(name, device):
                kept.add(name, device, row := run_row(name, device, options.limit))
                print(f"{name} on {device}: {row['ended']}", flush=True)
    write_page(README, kept)
    sys.exit(bool(kept.faults()))


if __name__ == "__main__":
    main()
