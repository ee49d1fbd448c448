"""Tactics that write another program, as plain data and back.

    ap.Microbatch({"batch": 0}, steps=4)   <->   ("microbatch", {"inputs": {"batch": 0}, "steps": 4, "loops": 1})

The data is what the tactic says of itself in its report. A tactic of this kind has an entry in `REWRITES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autopart.api.tactics.manual import Choice
from autopart.api.tactics.microbatch import Microbatch
from autopart.api.tactics.pad_tactic import Pad
from autopart.api.tactics.pipeline import PlannedPipeline
from autopart.api.tactics.recompute import Recompute
from autopart.api.tactics.tactic import Tactic
from autopart.base.errors import PartitionError, PlanError, closest
from autopart.base.quoting import one_line

_CHOICES = {repr(choice): choice for choice in Choice}


def _microbatch(settings: Mapping[str, Any], name: str) -> Tactic:
    return Microbatch(_decision(settings["inputs"]), settings["steps"], settings["loops"], name)


def _decision(given: Any) -> Any:
    """A dim, a dict below it, or a choice by its name; raises `PlanError` for the text of a function."""
    if isinstance(given, Mapping):
        return {str(key): _decision(below) for key, below in given.items()}
    if isinstance(given, str):
        if given not in _CHOICES:
            raise PlanError(
                f"{one_line(given)} cannot be part of a plan",
                why="it decides when it is called",
                hint="a dim, or a dict of names to dims",
            )
        return _CHOICES[given]
    return given


def _recompute(settings: Mapping[str, Any], name: str) -> Tactic:
    keep = settings["keep"]
    for policy in keep:
        if isinstance(policy, Mapping):
            raise PlanError(
                f"the function {one_line(str(policy.get('function')))} cannot be part of a plan",
                why="it decides when it is called",
                hint='a policy by name, such as "blocks", a tag, or a pattern of scopes',
            )
    return Recompute(tuple(keep), name)


def _pipeline(settings: Mapping[str, Any], name: str) -> Tactic:
    inputs = settings["inputs"]
    return PlannedPipeline(
        settings["axis"],
        settings["microbatches"],
        None if inputs is None else _decision(inputs),
        settings["schedule"],
        settings["repeats"],
        name,
    )


def _pad(settings: Mapping[str, Any], name: str) -> Tactic:
    return Pad(_pairs(settings["inputs"]), name)


def _pairs(given: Any) -> Any:
    """(dim, multiple) pairs, or a dict below a key."""
    if isinstance(given, Mapping):
        return {str(key): _pairs(below) for key, below in given.items()}
    return [(dim, multiple) for dim, multiple in given]


REWRITES: dict[str, Callable[[Mapping[str, Any], str], Tactic]] = {
    "microbatch": _microbatch,
    "pipeline": _pipeline,
    "recompute": _recompute,
    "pad": _pad,
}
"""What makes each tactic of its settings and its name, by the word under which it reports them."""


def rewriting_tactic(kind: str, settings: Mapping[str, Any], name: str) -> Tactic:
    """The tactic that a plan names. Raises `PlanError` where there is none or its settings are not legal."""
    if kind not in REWRITES:
        raise PlanError(f'no tactic of a plan is called "{kind}"', hint=closest(kind, REWRITES))
    try:
        return REWRITES[kind](settings, name)
    except PlanError:
        raise
    except (KeyError, TypeError, PartitionError) as error:
        raise PlanError(f'the plan\'s settings of "{kind}" are not legal', why=str(error)) from None
