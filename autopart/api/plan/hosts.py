"""Several hosts: every process of `jax.distributed` must run the same partitioned program.

    process 0    plan 9f2c...  ->  key-value store  ->  all alike: each compiles
    process 1    plan 5f0c...  ->                   ->  else PlanError on every process, with what differs

Without that, collectives of other sizes meet and the transport aborts. A search with a limit in seconds would find
something else on each host, so process 0 searches, and the others do what it found. Keys count the questions of one
kind, so processes have to lower and compile the same programs in the same order, as they have to call them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from autopart.base.errors import CONTINUED, PartitionError, PlanError
from autopart.core.doors.jax_internals import distributed_processes

WAIT_S = 1800.0
"""How long a process waits for another one. Hosts that search for themselves are not equally fast."""

SHOWN = 8
"""Lines of a difference that an error shows."""


class Store(Protocol):
    """What `jax.distributed` keeps for its processes."""

    def key_value_set(self, key: str, value: str) -> Any:
        """Sets a key, once."""

    def blocking_key_value_get(self, key: str, timeout_in_ms: int) -> str:
        """The value, as soon as somebody has set it; raises a `RuntimeError` where nobody does in time."""
        ...


@dataclass(frozen=True)
class Processes:
    """This process among others.

    me      its number; members: the numbers of all that take part, in order; the first one leads
    """

    store: Store
    me: int
    members: tuple[int, ...]
    asked: Counter[str] = field(default_factory=Counter, compare=False)

    @property
    def leads(self) -> bool:
        """True for the first member."""
        return self.me == self.members[0]

    def question(self, topic: str) -> str:
        """A key that the members have in common and nobody has used: the topic, and how often it came up."""
        name = hashlib.sha256(repr((topic, self.members)).encode()).hexdigest()[:24]
        self.asked[name] += 1
        return f"autopart/{name}/{self.asked[name]}"

    def tell(self, key: str, value: Any) -> None:
        """Shows the others a plain value."""
        text = base64.b64encode(zlib.compress(json.dumps(value).encode())).decode()
        self.store.key_value_set(key, text)

    def told(self, key: str, by: int) -> Any:
        """What process `by` shows; raises `PlanError` where it shows nothing in time."""
        try:
            text = self.store.blocking_key_value_get(key, int(WAIT_S * 1000))
        except RuntimeError as error:
            raise PlanError(
                f"process {by} did not come to the same place within {WAIT_S:.0f} s",
                why=str(error).splitlines()[0][:200],
                hint="every process lowers and compiles the same programs in the same order",
            ) from None
        return json.loads(zlib.decompress(base64.b64decode(text)))


_ASKED: Counter[str] = Counter()
"""How often each question came up in this process."""


def all_processes() -> Processes | None:
    """The processes of `jax.distributed`; None where there is only this one."""
    found = distributed_processes()
    return Processes(found[0], found[1], tuple(range(found[2])), _ASKED) if found else None


def processes_of(mesh: Any) -> Processes | None:
    """The processes whose devices a `jax.sharding.Mesh` has; None where it has those of this process alone."""
    found, members = all_processes(), tuple(sorted({int(d.process_index) for d in mesh.devices.flat}))
    if found is None or len(members) < 2 or found.me not in members:
        return None
    return Processes(found.store, found.me, members, found.asked)


def check_same(processes: Processes, digest: str, text: str, difference: Callable[[str], Sequence[str]]) -> None:
    """Raises `PlanError` on every process unless all have the same digest.

    digest      of what is compared; text: what a reader is shown of it
    difference  what differs between another process's text and the own one, as lines
    """
    key, first = processes.question("plan"), processes.members[0]
    if processes.leads:
        processes.tell(f"{key}/{processes.me}", text)
        others = {p: processes.told(f"{key}/{p}", p) for p in processes.members[1:]}
        processes.tell(f"{key}/verdict", [p for p, theirs in others.items() if theirs != digest])
    else:
        processes.tell(f"{key}/{processes.me}", digest)
    differing: list[int] = processes.told(f"{key}/verdict", first)
    if not differing:
        return
    lines = [f"process {p} has another one than process {first}" for p in differing[:SHOWN]]
    if processes.me in differing:
        shown = difference(processes.told(f"{key}/{first}", first))[:SHOWN]
        lines += [f"from process {first} to process {processes.me}:", *shown] if shown else []
    raise PlanError(
        f"{len(differing)} of {len(processes.members)} processes partitioned the program in another way",
        why=CONTINUED.join(lines),
        hint="one plan for all, ap.jit(fun, mesh, ap.Plan.load(path)); else the same program, schedule and seed",
    )


def by_the_first(processes: Processes, about: Sequence[str], make: Callable[[], Any]) -> Any:
    """What `make` returned on the first process, a plain value; its errors go to all of them.

    about   what it is made of, such as program and mesh; raises `PlanError` where the first process has something else
    """
    key, first = processes.question("made by the first"), processes.members[0]
    if not processes.leads:
        answer = processes.told(key, first)
        if answer["about"] != list(about):
            raise PlanError(
                f"process {first} searches a schedule for another program or mesh",
                why=f"it has {', '.join(answer['about'])}, and this process {', '.join(about)}",
                hint="every process lowers and compiles the same programs in the same order",
            )
        if "error" in answer:
            raise PlanError(f"process {first} failed: {answer['error']}")
        return answer["made"]
    try:
        made = make()
    except BaseException as error:  # the others wait for it, whatever it is
        why = error.what if isinstance(error, PartitionError) else repr(error)[:500]
        processes.tell(key, {"about": list(about), "error": why})
        raise
    processes.tell(key, {"about": list(about), "made": made})
    return made
