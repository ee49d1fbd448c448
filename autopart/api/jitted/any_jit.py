"""A function of whatever modules: jitted by the one of `ap.jit`, `ap.filter_jit` and `ap.nnx.jit` that takes them.

step(params, x)      arrays                               ap.jit
step(model, x)       a module of Equinox                  ap.filter_jit
step(model, opt, x)  modules of Flax nnx                  ap.nnx.jit

Neither library is imported for that: whoever has a module of one has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import jax

from autopart.api.jitted.filter_jit import filter_jit
from autopart.api.jitted.jit import jit
from autopart.api.jitted.lowered import Lowered
from autopart.api.tactics.tactic import Tactic
from autopart.api.tracing.trace import LoadedProgram, Traced
from autopart.core.mesh import Mesh


class Jitted(Protocol):
    """What the three of them return, as far as it is the same."""

    def lower(self, /, *args: Any) -> Lowered:
        """The partitioned program for arguments of these shapes."""
        ...

    def __call__(self, /, *args: Any) -> Any:
        """Runs it."""
        ...

    def traced(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Traced:
        """The program for arguments of these shapes, before any schedule."""
        ...

    def given(self, traced: Traced, mesh: Mesh) -> Sequence[Tactic]:
        """What comes before the schedule on a mesh."""
        ...


def any_jit(
    fun: Callable | LoadedProgram, mesh: Mesh, args: Sequence[Any], schedule: Sequence[Tactic] = (), **jit_options: Any
) -> Jitted:
    """`fun`, jitted for arguments such as `args`; `jit_options` are those of `ap.jit`."""
    if isinstance(fun, LoadedProgram) or not (holds_nnx(args) or _holds(args, "equinox", "Module")):
        return jit(fun, mesh, schedule, **jit_options)
    if not holds_nnx(args):
        return filter_jit(fun, mesh, schedule, **jit_options)
    from autopart.api.jitted import nnx

    return nnx.jit(fun, mesh, schedule, **jit_options)


def holds_nnx(args: Sequence[Any]) -> bool:
    """Whether some argument is, or holds, a module of Flax nnx, an optimizer or a variable."""
    return _holds(args, "flax.nnx", "Module", "Optimizer", "Variable")


def _holds(args: Sequence[Any], module: str, *classes: str) -> bool:
    """Whether some argument is, or holds, an object of one of the classes."""
    types = tuple(getattr(sys.modules[module], name) for name in classes) if module in sys.modules else ()
    is_one = lambda x: isinstance(x, types)  # noqa: E731
    return bool(types) and any(map(is_one, jax.tree.leaves(list(args), is_leaf=is_one)))
