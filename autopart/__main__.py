"""`python -m autopart`: the command line.

python -m autopart ops                      the table of ops and their tile mappings
python -m autopart ops --coverage FILE      how much of a StableHLO file's ops have a rule
"""

from __future__ import annotations

import argparse
import sys

from autopart.api.trace import load
from autopart.core.errors import PartitionError
from autopart.core.ops.ops_table import coverage, ops_table


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="autopart", description="Partition array programs over device meshes.")
    commands = parser.add_subparsers(dest="command", required=True)
    ops = commands.add_parser("ops", help="tile mappings of every op that has a rule")
    ops.add_argument("--coverage", metavar="FILE", help="a StableHLO file (text, gzip or bytecode) to check instead")
    options = parser.parse_args(arguments)
    try:
        print(coverage(load(options.coverage).traced.program) if options.coverage else ops_table())
    except (PartitionError, OSError) as error:
        print(f"autopart: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
