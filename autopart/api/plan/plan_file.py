"""Plans as files: JSON with a digest, a line per decision and array, so that version control shows what changed.

    {
     "autopart_plan": 1,
     "mesh": {"axes": [["batch", 8], ["model", 4]], "device": "tpu_v3", "links": []},
     "steps": [
      {"name": "BP", "actions": [
       ["tile", ["argument", "x"], 0, "batch"],
       ...
     "hash": "9f2c...", "digest": "5f0c..."
    }

A file comes from strangers. Everything in it is checked for its type here, and for what it means where it is applied;
the digest finds accidents and is no signature.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from autopart.base.errors import PlanError
from autopart.search.storage.sealed_json import MOST_BYTES, SealError, digest_of, unseal

if TYPE_CHECKING:
    from autopart.api.plan.plan import Plan

VERSION = 1
"""Of the format."""


def plain_plan(plan: Plan) -> dict[str, Any]:
    """The plan as plain data, without digest."""
    return {
        "autopart_plan": VERSION,
        "made_by": plan.made_by,
        "mesh": {"axes": plan.axes, "device": plan.device, "links": plan.links},
        "program": plan.program,
        "options": plan.options,
        "steps": [
            {"name": step.name, "actions": step.actions} | ({"rewrite": step.rewrite} if step.rewrite else {})
            for step in plan.steps
        ],
        "inputs": [[a.name, a.type, a.spec, *([a.dims] if any(a.dims) else [])] for a in plan.inputs],
        "outputs": [[a.name, a.type, a.spec] for a in plan.outputs],
        "collectives": plan.collectives,
        "step_s": plan.step_s,
        "peak_bytes": plan.peak_bytes,
        "lines": [[line.where, line.value, line.type, line.spec, line.count, line.made_by] for line in plan.lines],
        "hash": plan.hash,
    }


def hash_of(plan: Plan) -> str:
    """Hex digest of mesh, program, options, actions and layouts."""
    decided = [
        plan.axes, plan.program, dict(plan.options), [(step.actions, step.rewrite) for step in plan.steps],
        [(a.name, a.type, a.spec) for a in (*plan.inputs, *plan.outputs)],
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(decided, sort_keys=True).encode()).hexdigest()[:32]


def written_plan(plan: Plan) -> bytes:
    """The file's content."""
    try:
        plain = json.loads(json.dumps(plain_plan(plan)))
    except (TypeError, ValueError) as error:
        raise PlanError("the plan cannot be written", why=str(error)) from None
    return (_text({**plain, "digest": digest_of(plain)}) + "\n").encode()


def _text(value: Any, indent: str = "\n") -> str:
    """JSON with a line per entry, of the outermost object, of its lists, and of the lists of actions in them."""
    inner = indent + " "
    if isinstance(value, dict) and (len(indent) == 1 or "actions" in value) and value:
        parts = [f"{json.dumps(key)}: {_text(part, inner)}" for key, part in value.items()]
        return "{" + inner + ("," + inner).join(parts) + indent + "}"
    if isinstance(value, list) and len(indent) < 5 and any(isinstance(part, (list, dict)) for part in value):
        return "[" + inner + ("," + inner).join(_line(part, inner) for part in value) + indent + "]"
    return json.dumps(value)


def _line(part: Any, indent: str) -> str:
    return _text(part, indent) if isinstance(part, dict) else json.dumps(part)


def read_plan(
    path: Path, step: Callable[..., Any], array: Callable[..., Any], line: Callable[..., Any]
) -> dict[str, Any]:
    """The fields of the plan in a file, whose parts `step`, `array` and `line` make. Raises `PlanError`."""
    try:
        size = path.stat().st_size
        data = path.read_bytes() if size <= MOST_BYTES else b""
    except OSError as error:
        raise PlanError(f"{path!s} cannot be read", why=error.strerror or str(error)) from None
    if size > MOST_BYTES:
        raise PlanError(f"{path!s} is no plan", why=f"it is {size:,} bytes long")
    return parsed_plan(data, str(path), step, array, line)


def parsed_plan(
    data: bytes, what: str, step: Callable[..., Any], array: Callable[..., Any], line: Callable[..., Any]
) -> dict[str, Any]:
    """The same of a file's content; `what` says where that is from."""
    try:
        data_of = unseal(data)
        lines = tuple(_code_line(row, line) for row in _list(data_of, "lines")) if "lines" in data_of else ()
        return {**_fields(data_of, step, array), "lines": lines}
    except (SealError, PlanError) as error:
        why = error.what if isinstance(error, PlanError) else str(error)
        raise PlanError(f"{what} is no plan, or a damaged one", why=why) from None


def _fields(data: dict[str, Any], step: Callable[..., Any], array: Callable[..., Any]) -> dict[str, Any]:
    version = data.get("autopart_plan")
    if version is None:
        raise PlanError("it holds no plan")
    if version != VERSION:
        raise PlanError(f"it is of version {version!r:.20}, and this autopart reads version {VERSION}")
    mesh = _mapping(data, "mesh")
    read: dict[str, Any] = {
        "axes": tuple((_str(name), _count(size)) for name, size in _pairs(_list(mesh, "axes"))),
        "device": None if mesh.get("device") is None else _str(mesh["device"]),
        "links": tuple((_str(name), _str(link)) for name, link in _pairs(_list(mesh, "links"))),
        "program": _str(data.get("program")),
        "options": _mapping(data, "options"),
        "steps": tuple(_step(row, step) for row in _list(data, "steps")),
        "inputs": tuple(_array(row, array) for row in _list(data, "inputs")),
        "outputs": tuple(_array(row, array) for row in _list(data, "outputs")),
        "collectives": {_str(kind): _count(n) for kind, n in _mapping(data, "collectives").items()},
        "step_s": _cost(data.get("step_s")),
        "peak_bytes": _cost(data.get("peak_bytes")),
        "made_by": _str(data.get("made_by")),
    }
    return read


def _step(row: Any, step: Callable[..., Any]) -> Any:
    if not isinstance(row, dict):
        raise PlanError(f"{row!r:.80} is no step")
    rewrite = row.get("rewrite")
    if rewrite is not None:
        match rewrite:
            case [str(kind), dict(settings)]:
                rewrite = (kind, settings)
            case _:
                raise PlanError(f"{rewrite!r:.80} rewrites nothing")
    return step(_str(row.get("name")), tuple(map(_row, _list(row, "actions"))), rewrite)


def _row(row: Any) -> tuple[Any, ...]:
    """An action; what its parts mean is asked where it is applied. Numbers are kept to what an array can index."""
    if not isinstance(row, list):
        raise PlanError(f"{row!r:.80} is no action")
    return tuple(_part(part) for part in cast("list[Any]", row))


def _part(part: Any) -> Any:
    if isinstance(part, list):
        return tuple(_part(inner) for inner in cast("list[Any]", part))
    if isinstance(part, str) or (type(part) is int and -1 <= part < 2**31):
        return part
    raise PlanError(f"{part!r:.80} is no part of an action")


def _array(row: Any, array: Callable[..., Any]) -> Any:
    match row:
        case [str(name), str(type_), list(spec), *dims] if len(dims) < 2:
            roles = tuple(map(_str, _as_list(dims[0]))) if dims else ()
            return array(name, type_, _spec(spec), roles)
        case _:
            raise PlanError(f"{row!r:.80} is no input or output")


def _spec(spec: list[Any]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(map(_str, _as_list(dim))) for dim in spec)


def _code_line(row: Any, line: Callable[..., Any]) -> Any:
    match row:
        case [str(where), str(value), str(type_), list(spec), int(count), *made_by] if len(made_by) < 2:
            return line(where, value, type_, _spec(spec), _count(count), *map(_str, made_by))
        case _:
            raise PlanError(f"{row!r:.80} is no line of code")


def _mapping(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = data.get(name)
    if not isinstance(found, dict):
        raise PlanError(f'its "{name}" is {found!r:.80}')
    return cast("dict[str, Any]", found)


def _list(data: Mapping[str, Any], name: str) -> list[Any]:
    found = data.get(name)
    if not isinstance(found, list):
        raise PlanError(f'its "{name}" is {found!r:.80}')
    return cast("list[Any]", found)


def _as_list(given: Any) -> list[Any]:
    if not isinstance(given, list):
        raise PlanError(f"{given!r:.80} is no list")
    return cast("list[Any]", given)


def _pairs(rows: Sequence[Any]) -> Sequence[Any]:
    for row in rows:
        if not isinstance(row, list) or len(cast("list[Any]", row)) != 2:
            raise PlanError(f"{row!r:.80} is no pair")
    return rows


def _str(given: Any) -> str:
    if not isinstance(given, str):
        raise PlanError(f"{given!r:.80} is no text")
    return given


def _count(given: Any) -> int:
    if type(given) is not int or not 0 <= given < 2**63:
        raise PlanError(f"{given!r:.80} is no count")
    return given


def _cost(given: Any) -> float | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not math.isfinite(given) or given < 0:
        raise PlanError(f"{given!r:.80} is no cost")
    return float(given)
