"""Does an assistant get answers over stdio: tools that say what they take, results as JSON, errors that teach?"""

from __future__ import annotations

import asyncio
import json
import os
import sys

import pytest

from tests.command_line.test_as_capable_as_python import MODEL

pytest.importorskip("mcp")

WHERE = {"program": "capable.py:example", "mesh": "data=4,model=2", "device": "h100"}

CALLS = [
    ("explain", {**WHERE, "path": "params/table", "schedule": ["DP(data)"]}),
    ("what_if", {**WHERE, "decision": "params/table=1", "axis": "model"}),
    ("search", {**WHERE, "budget": 5, "top": 2}),
    ("sweep", {"program": "capable.py:example", "devices": "4", "device": "h100", "budget": 3, "axes": "data"}),
    ("search", {**WHERE, "program": "capable.py:exampel"}),
    ("explain", {**WHERE, "path": "params/tabel"}),
]


def asked(folder):
    """The names of the tools, and (is it an error, text) of each call, of a server in its own process."""
    from mcp import ClientSession, StdioServerParameters, stdio_client

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path]), "JAX_PLATFORMS": "cpu"}
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "autopart", "serve", "--mcp"], env=environment, cwd=folder
    )

    async def ask():
        async with stdio_client(command) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            tools = {tool.name: tool for tool in (await session.list_tools()).tools}
            results = [await session.call_tool(name, arguments) for name, arguments in CALLS]
            return tools, [(result.is_error, result.content[0].text) for result in results]

    return asyncio.run(ask())


def test_a_client_asks_every_tool(tmp_path):
    (tmp_path / "capable.py").write_text(MODEL)
    tools, answers = asked(tmp_path)
    assert set(tools) == {"explain", "what_if", "search", "sweep"}
    assert all(tool.description and "program" in tool.input_schema["properties"] for tool in tools.values())
    assert [error for error, _ in answers] == [False] * 4 + [True] * 2
    explained, decided, found, swept = (json.loads(text) for _, text in answers[:4])
    assert explained["text"].startswith("as it stands")
    assert decided["actions"] == ["tile<params/table, 1, model>"]
    assert [row["rank"] for row in found["top"]] == [1, 2]
    assert found["schedule"].startswith("schedule = [")
    assert swept["rows"][0]["tokens"] == 128
    assert "'example'" in answers[4][1]
    assert "params/table" in answers[5][1]
