"""Schedules by name or file name, wherever a schedule stands.

"FSDP(data)+Megatron(model)"      a named schedule
"plan.json"                       a plan
"tactics.py", "tactics.py:mine"   the list `schedule`, or `mine`, of a Python file
"train.tactics:mine"              that of a module
["DP(data)", ap.ShardedLoops()]   some of these among tactics
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from autopart.api.plan.plan import Plan
from autopart.api.plan.replay_tactic import Replay
from autopart.api.tactics.parallelism import Parallelism
from autopart.api.tactics.tactic import SCHEDULE, Tactic
from autopart.base.arguments import check, is_sequence, shown
from autopart.base.errors import ArgumentError, UnknownNameError, closest

Schedule = Sequence[Tactic | str] | Plan | str | Path
"""What stands for a schedule."""


def schedule_of(owner: str, given: Any) -> Sequence[Tactic]:
    """The tactics that are meant. Raises what reading a file raises, and `ArgumentError` for what is no schedule."""
    if isinstance(given, str | Path):
        return _read(owner, str(given))
    if is_sequence(given) and not isinstance(given, Plan):
        texts = [isinstance(part, str | Path) for part in given]
        if len(texts) == 1 and texts[0]:
            return _read(owner, str(given[0]))
        parts = [_read(owner, str(part)) if is_text else [part] for part, is_text in zip(given, texts, strict=True)]
        given = [tactic for part in parts for tactic in ([Replay(part)] if isinstance(part, Plan) else part)]
    check(owner, schedule=(given, SCHEDULE))
    return given


def _read(owner: str, text: str) -> Sequence[Tactic]:
    """The schedule that a text names."""
    if text.endswith(".json"):
        return Plan.load(text)
    if text.endswith(".py"):
        text = f"{text}:schedule"
    if "(" in text or ":" not in text:
        try:
            return [Parallelism(text)]
        except ArgumentError as error:
            others = "a list of tactics, a plan.json, or FILE.py:NAME of a list"
            raise ArgumentError(
                f"{owner}: schedule is {shown(text)}, which is no named schedule", hint=f"{error.hint}; {others}"
            ) from None
    return schedule_of(text, named_object(text))


def named_object(text: str) -> Any:
    """What MODULE:NAME or FILE.py:NAME names; the working directory is searched for modules too."""
    module, _, name = text.rpartition(":")
    if module.endswith(".py"):
        if not Path(module).is_file():
            raise UnknownNameError(f"there is no file {module}", hint="FILE.py:NAME of a Python file, or MODULE:NAME")
        space: Mapping[str, Any] = runpy.run_path(module)
    else:
        if not all(part.isidentifier() for part in module.split(".")):
            raise UnknownNameError(f"there is no module {module!r}", hint="MODULE:NAME, or FILE.py:NAME")
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        try:
            space = vars(importlib.import_module(module))
        except ModuleNotFoundError as error:
            raise UnknownNameError(f"there is no module {module}", why=str(error)) from None
    if name not in space:
        own = [n for n, value in space.items() if n[:2] != "__" and not isinstance(value, ModuleType)]
        raise UnknownNameError(f'{module} has no "{name}"', hint=closest(name, own))
    return space[name]
