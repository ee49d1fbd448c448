"""Where a function that jax traced computes something else on another platform.

    jax.lax.platform_dependent(x, cpu=f, tpu=g, default=h)      branches (("cpu",), ("tpu",), None)
    jax.export.export(f, platforms=("cpu", "tpu")), called      branches (("cpu",), ("tpu",))
    jax.random.normal(key)                                      branches (("cpu",), None)

jax lowers threefry's rounds as a loop for a CPU and one after the other elsewhere; XLA's CPU compiler may take minutes
for those where a few draws follow each other. Lowering for one platform takes one branch, of which the StableHLO says
nothing. So these are found in the jaxpr.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from autopart.core.importer.jaxprs import equations, source_line


@dataclass(frozen=True)
class PlatformChoice:
    """A choice between branches by platform.

    text      what chooses, as jax calls it
    branches  the platforms of each branch; None for the branch of all others
    where     the source line
    """

    text: str
    branches: tuple[tuple[str, ...] | None, ...]
    where: str

    def differs(self, one: str, other: str) -> bool:
        """True if the two platforms take different branches."""
        return self._branch(one) != self._branch(other)

    def _branch(self, platform: str) -> int | None:
        named = [n for n, platforms in enumerate(self.branches) if platforms is not None and platform in platforms]
        rest = [n for n, platforms in enumerate(self.branches) if platforms is None]
        return next(iter([*named, *rest]), None)


def platform_choices(jaxpr: Any) -> tuple[PlatformChoice, ...]:
    """The choices in a jaxpr that has more than one branch for them."""
    return tuple(choice for choice in _choices(jaxpr) if len(choice.branches) > 1)


def _choices(jaxpr: Any) -> Iterator[PlatformChoice]:
    for equation in equations(jaxpr):
        match equation.primitive.name:
            case "platform_index":
                yield PlatformChoice("platform_dependent", equation.params["platforms"], source_line(equation))
            case "call_exported":
                exported = equation.params["exported"]
                branches = tuple((platform,) for platform in exported.platforms)
                yield PlatformChoice(f"the exported function {exported.fun_name}", branches, source_line(equation))
            case "random_bits" | "random_split" | "random_fold_in" | "threefry2x32":
                yield PlatformChoice(f"jax's {equation.primitive.name}", (("cpu",), None), source_line(equation))
            case _:
                pass
