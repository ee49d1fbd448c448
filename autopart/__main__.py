"""`python -m autopart`: the command line.

python -m autopart ops                      the table of ops and their tile mappings
python -m autopart ops --flop               flop of each example of an op, as the cost model and as XLA count them
python -m autopart ops --coverage FILE      how much of a StableHLO file's ops have a rule
python -m autopart warmup                   compiles the kernels ahead of time, for an image
"""

from __future__ import annotations

import argparse
import sys

from autopart.api.trace import load
from autopart.api.warmup import warmup
from autopart.core.errors import PartitionError
from autopart.core.ops.ops_table import coverage, ops_table
from autopart.costmodel.flop_table import flop_table


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="autopart", description="Partition array programs over device meshes.")
    commands = parser.add_subparsers(dest="command", required=True)
    ops = commands.add_parser("ops", help="tile mappings of every op that has a rule")
    instead = ops.add_mutually_exclusive_group()
    instead.add_argument(
        "--coverage", metavar="FILE", help="a StableHLO file (text, gzip or bytecode) to check instead"
    )
    instead.add_argument("--flop", action="store_true", help="flop of every op's examples beside XLA's count instead")
    commands.add_parser("warmup", help="compile the kernels of estimates and searches ahead of time")
    options = parser.parse_args(arguments)
    try:
        if options.command == "warmup":
            print(f"kernels are compiled, or were: {warmup():.1f} s")
        elif options.coverage:
            print(coverage(load(options.coverage).traced.program))
        else:
            print(flop_table() if options.flop else ops_table())
    except (PartitionError, OSError) as error:
        print(f"autopart: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
