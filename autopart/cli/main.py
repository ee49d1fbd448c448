"""The command line as a whole: its subcommands, its exit codes, and what it says of errors.

autopart estimate model.mlir --mesh batch=8 --device tpu_v3 --schedule "DP(batch)"

0   done, and the answer is yes
1   done, and the answer is no: plans differ, results differ, nothing fits in memory
2   not done: the command line, a file, the program or the schedule is wrong; stderr says why
"""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Sequence
from typing import TextIO

import click

from autopart.api.jitted.verification import on_the_host
from autopart.base.errors import PartitionError, PartitionWarning
from autopart.base.quoting import one_line
from autopart.base.user_line import is_of_user
from autopart.cli.cache_command import cache
from autopart.cli.calibrate_command import calibrate
from autopart.cli.completion_command import completion
from autopart.cli.devices_command import devices
from autopart.cli.diff_command import diff
from autopart.cli.estimate_command import estimate
from autopart.cli.explain_command import explain
from autopart.cli.ops_command import ops
from autopart.cli.partition_command import partition
from autopart.cli.quiet_libraries import quiet_libraries
from autopart.cli.raised_by_program import said_of
from autopart.cli.report_command import report
from autopart.cli.reshard_plan_command import reshard_plan
from autopart.cli.search_command import search
from autopart.cli.serve_command import serve
from autopart.cli.sweep_command import sweep
from autopart.cli.verify_command import verify
from autopart.cli.warmup_command import warmup
from autopart.cli.what_if_command import what_if

WRONG = 2
"""The exit code where nothing could be done."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def autopart() -> None:
    """Partition array programs over device meshes.

    PROGRAM is a StableHLO file (text, gzipped text or bytecode), or MODULE:FUNCTION, where FUNCTION takes no arguments
    and returns (fun, args), or (fun, args, options) with keywords of ap.jit. Exit codes: 0 yes, 1 no, 2 not done.
    """


for command in (
    partition, search, sweep, estimate, explain, what_if, diff, report, reshard_plan, verify, devices, calibrate, ops,
    cache, warmup, completion, serve,
):  # fmt: skip
    autopart.add_command(command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command, by default that of the process; returns the exit code."""
    with quiet_libraries() if arguments is None else contextlib.nullcontext(), warnings.catch_warnings():
        warnings.showwarning = _warned
        return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    on_the_host()
    try:
        code = autopart.main(list(sys.argv[1:] if arguments is None else arguments), "autopart", standalone_mode=False)
    except click.ClickException as error:
        error.show(said := io.StringIO())
        return _failed(said.getvalue())
    except click.Abort:
        return _failed("autopart: interrupted")
    except PartitionError as error:
        return _failed(f"autopart: {error}")
    except (Exception, SystemExit) as error:  # of the program, the schedule, or what they import
        return _failed(f"autopart: {said_of(error)}")
    return code if isinstance(code, int) else 0


def _warned(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning on stderr, with its line where a file of the user's raised it; ours are about the command."""
    at = "" if issubclass(category, PartitionWarning) or not is_of_user(filename) else f"{filename}:{lineno}: "
    lines = f"{at}{category.__name__}: {message}".splitlines()
    print("\n".join(map(one_line, lines)), file=sys.stderr)


def _failed(why: str) -> int:
    print("\n".join(map(one_line, why.splitlines())), file=sys.stderr)
    return WRONG
