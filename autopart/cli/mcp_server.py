"""An MCP server over stdio: explain, what_if, search and sweep as tools for assistants.

{"method": "tools/call", "params": {"name": "search", "arguments": {"program": "train.py:example",
 "mesh": "data=8,model=8", "device": "h100", "top": 3}}}

    -> {"top": [{"rank": 1, "name": "found", "step_s": 1.05, "reasons": [...]}, ...], "schedule": "...", "fits": [...]}

Arguments are the words of the command line, and what is wrong with them comes back as its errors do. It needs the
package mcp: pip install autopart[mcp].
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from autopart.api.compared.ranking import ranking
from autopart.base.errors import ArgumentError, PartitionError
from autopart.cli.asked import Asked
from autopart.cli.raised_by_program import said_of
from autopart.cli.search_command import search_of, what_fits
from autopart.cli.sweep_command import swept
from autopart.cli.what_if_command import decision_of

INSTRUCTIONS = """\
autopart partitions JAX programs over device meshes and estimates seconds and bytes of a step without any accelerator.
program is FILE.py:FUNCTION or MODULE:FUNCTION, whose function takes nothing and returns (fun, args) or (fun, args,
options of ap.jit), or a StableHLO file. mesh is like data=8,model=4. schedule is a list: a named schedule such as
"FSDP(data)+Megatron(model)", plan.json, or FILE.py with a list named schedule. Programs run in this process."""


def serve_over_stdio() -> None:
    """Answers until stdin ends. Raises `ArgumentError` where the package mcp is missing."""
    try:
        from mcp.server import MCPServer
    except ModuleNotFoundError as error:
        hint = "pip install 'autopart[mcp]'"
        raise ArgumentError("autopart serve needs the package mcp", why=str(error), hint=hint) from None
    made = MCPServer("autopart", instructions=INSTRUCTIONS, version=version("autopart"), log_level="WARNING")
    for tool in (explain, what_if, search, sweep):
        made.tool(description=tool.__doc__, structured_output=False)(tool)
    made.run("stdio")


def explain(
    program: str, mesh: str, path: str, device: str | None = None, schedule: list[str] | None = None,
    microbatch: str | None = None, recompute: list[str] | None = None,
) -> str:  # fmt: skip
    """Why the array at path, such as params/blocks/3/qkv, lies as it does: tactics, ops, readers, collectives."""
    asked = Asked(program, mesh, device, tuple(schedule or ()), microbatch, tuple(recompute or ()))
    return _told(lambda: {"text": str(found := asked.lowered().explain(path)), **dataclasses.asdict(found)})


def what_if(
    program: str, mesh: str, decision: str, axis: str, device: str | None = None, schedule: list[str] | None = None,
    microbatch: str | None = None, recompute: list[str] | None = None,
) -> str:  # fmt: skip
    """What another decision (PATH=DIM, or PATH=whole) along an axis would cost beside the schedule's."""
    asked = Asked(program, mesh, device, tuple(schedule or ()), microbatch, tuple(recompute or ()))

    def told() -> dict[str, Any]:
        found = asked.lowered().what_if(decision_of(decision), axis.split(","))
        return {"text": str(found), **dataclasses.asdict(found)}

    return _told(told)


def search(
    program: str, mesh: str, device: str, schedule: list[str] | None = None, top: int = 3, budget: int = 200,
    seconds: float | None = None, microbatch: str | None = None, recompute: list[str] | None = None,
    optimizer: str = "mcts", seed: int = 0, uneven: str = "refuse", save_plan: str | None = None,
) -> str:  # fmt: skip
    """The best schedules by estimated cost, each with its reasons, and the first one as code.

    microbatch ("1,2,4") and recompute (["blocks", "matmuls"]) are choices; fits has commands to try where nothing fits.
    """
    asked = Asked(program, mesh, device, tuple(schedule or ()), microbatch, tuple(recompute or ()))

    def told() -> dict[str, Any]:
        wanted = search_of(asked, optimizer=optimizer, budget=budget, seconds=seconds, seed=seed, uneven=uneven)
        low = asked.searched(wanted)
        if save_plan:
            low.plan.save(save_plan)
        rows = [row.plain() for row in ranking(low, top)]
        return {"top": rows, "schedule": low.metadata.as_schedule(), "plan": save_plan, "fits": what_fits(low, asked)}

    return _told(told)


def sweep(
    program: str, devices: str, device: str | None = None, price: str | None = None, tokens: int | None = None,
    axes: str = "batch,model", schedule: list[str] | None = None, budget: int = 50, seed: int = 0,
) -> str:  # fmt: skip
    """A search on every mesh of a number of devices ("64" with device, or "h100=64,tpu_v5p=32"): step, memory, MFU.

    price ("h100=2.5") is that of a device and hour, for what a million tokens cost.
    """

    def told() -> dict[str, Any]:
        found = swept(program, devices, device, price, tokens, axes, tuple(schedule or ()), budget=budget, seed=seed)
        return {"text": str(found), **json.loads(found.to_json())}

    return _told(told)


def _told(make: Callable[[], dict[str, Any]]) -> str:
    """What a tool says, as JSON; what is wrong as the command line says it."""
    from mcp.server.mcpserver.exceptions import ToolError

    try:
        return json.dumps(make(), default=str)
    except PartitionError as error:
        raise ToolError(str(error)) from None
    except (Exception, SystemExit) as error:  # of the program, the schedule, or what they import
        raise ToolError(said_of(error)) from None
