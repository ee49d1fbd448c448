"""Does a partitioned program compute what the whole one does? Both run on host devices and are compared.

    verify(train_step, mesh, schedule, args)     output  type    difference  of       agrees
                                                 0/w     f32[8]  2.1e-07     1.4e+00  yes

Two orders of the same sum differ by rounding, so arrays of floats agree where they differ by at most a share of their
largest element: the square root of the rounding step of the narrowest type that the program computes in (3.5e-4 for
f32, 8.9e-2 for bf16). Others are equal.

Elements that are NaN, or the same infinity, on both sides agree too, but say nothing: they are counted.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from autopart.api.jitted.any_jit import Jitted, any_jit, holds_nnx
from autopart.api.jitted.filter_jit import FilteredFunction, hidden, revealed
from autopart.api.jitted.jit import jit
from autopart.api.programs.does_not_fit import only_updated
from autopart.api.tactics.tactic import Tactic
from autopart.api.tracing.leaves import bits_of
from autopart.api.tracing.trace import LoadedProgram, Traced
from autopart.base.errors import CallError
from autopart.base.html import lines_html, table_html
from autopart.core.doors.jax_internals import numpy_dtype
from autopart.core.mesh import Mesh
from autopart.search.space.next_values import next_values

_HOST_DEVICES = "--xla_force_host_platform_device_count"


@dataclass(frozen=True)
class OutputDifference:
    """How far one output is from the whole program's.

    difference   the largest difference of two elements
    largest      the largest finite element of the whole program's output
    elements     how many it has; not_finite: how many of them are NaN, or the same infinity, on both sides
    """

    name: str
    type: str
    difference: float
    largest: float
    agrees: bool
    elements: int = 1
    not_finite: int = 0

    @property
    def is_compared(self) -> bool:
        """True if there is an element that says whether the two agree."""
        return self.not_finite < self.elements

    @property
    def answer(self) -> str:
        """Whether it agrees, and how many of its elements do not count."""
        if not self.agrees:
            return "NO"
        if not self.elements:
            return "no elements"
        not_finite = f"{self.not_finite} of {self.elements} elements not finite"
        return ("yes" if self.is_compared else "nothing compared") + (f", {not_finite}" if self.not_finite else "")


@dataclass(frozen=True)
class Verification:
    """The outputs, compared."""

    rows: tuple[OutputDifference, ...]

    @property
    def agrees(self) -> bool:
        """True if every output does."""
        return all(row.agrees for row in self.rows)

    @property
    def is_compared(self) -> bool:
        """True if any output has an element that says whether the two programs agree."""
        return any(row.is_compared for row in self.rows)

    def __str__(self) -> str:
        cells = self._table()
        widths = [max(len(row[i]) for row in cells) for i in range(5)]
        lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells]
        return "\n".join([*lines, self.summary])

    def _repr_html_(self) -> str:
        """For notebooks: a row for each output."""
        header, *rows = self._table()
        return table_html(header, rows) + lines_html([self.summary])

    def _table(self) -> list[list[str]]:
        cells = [["output", "type", "difference", "of", "agrees"]]
        for row in self.rows:
            cells.append([row.name or "-", row.type, f"{row.difference:.1e}", f"{row.largest:.1e}", row.answer])
        return cells

    @property
    def summary(self) -> str:
        """The last line: what all the outputs together say."""
        differing = sum(not row.agrees for row in self.rows)
        if differing:
            return f"{differing} of {len(self.rows)} outputs differ"
        if not self.is_compared:
            none = "no output has a finite element" if self.rows else "the program has no outputs"
            return f"nothing was compared: {none}"
        compared, not_finite = sum(row.is_compared for row in self.rows), sum(row.not_finite for row in self.rows)
        counted = "all" if compared == len(self.rows) else f"{compared} of"
        beside = f"; {not_finite} of their elements are not finite, and say nothing" if not_finite else ""
        return f"{counted} {len(self.rows)} outputs agree{beside}"


def on_the_host() -> None:
    """Keeps jax from starting an accelerator, whose libraries write to the terminal, unless JAX_PLATFORMS asks for one.

    What is lowered for a device needs none.
    """
    if not os.environ.get("JAX_PLATFORMS"):
        jax.config.update("jax_platforms", "cpu")


def host_devices(count: int) -> None:
    """Makes jax show `count` devices of the host's CPU; only before it is first used.

    Raises `CallError` where it shows fewer already.
    """
    if _HOST_DEVICES not in os.environ.get("XLA_FLAGS", ""):
        try:
            jax.config.update("jax_platforms", "cpu")
            jax.config.update("jax_num_cpu_devices", count)
        except RuntimeError as error:
            raise CallError(f"jax cannot show {count} host devices any more", why=str(error)) from None
    there = len(jax.devices("cpu"))
    if there < count:
        raise CallError(
            f"the mesh has {count} devices, and jax shows {there}", hint=f"XLA_FLAGS={_HOST_DEVICES}={count}"
        )


def verify(
    fun: Callable[..., Any] | LoadedProgram,
    mesh: Mesh,
    schedule: Sequence[Tactic],
    args: Sequence[Any] = (),
    *,
    seed: int = 0,
    tolerance: float | None = None,
    **jit_options: Any,
) -> Verification:
    """Runs `fun` whole and partitioned, and compares.

    args        concrete or abstract; what is abstract is filled: floats with normal numbers, integers with 0 and 1
    tolerance   differences of floats allowed, as a share of the output's largest element; None: by type

    Modules of Flax nnx and Equinox are taken too; of the first, what the step leaves in them is compared. Raises
    `CallError` where there are too few devices.
    """
    partitioned = any_jit(fun, mesh, args, schedule, **jit_options)
    if isinstance(fun, LoadedProgram):
        args = args or fun.traced.of_leaves(fun.traced.in_avals)
    traced = partitioned.traced(args, {})  # says what is wrong with the arguments, before anything runs
    static = {key: jit_options[key] for key in ("static_argnums", "static_argnames") if key in jit_options}
    fill = functools.partial(_array, random=np.random.default_rng(seed))
    if holds_nnx(args) and not isinstance(fun, LoadedProgram):
        from autopart.api.jitted import nnx

        expected, found = nnx.run_both(fun, partitioned, args, fill, static)
    else:
        filled = _filled(args, traced, fill)
        expected, found = (hidden(run(*filled)) for run in (_whole(fun, partitioned, static), partitioned))
    pairs = zip(jax.tree_util.tree_flatten_with_path(expected)[0], jax.tree.leaves(found), strict=True)
    least = max(map(_rounding_step, {t.dtype for spec in traced.program.specs for t in spec.results}), default=0.0)
    return Verification(tuple(compared(_name(path), want, got, tolerance, least) for (path, want), got in pairs))


def _whole(
    fun: Callable[..., Any] | LoadedProgram, partitioned: Jitted, static: Mapping[str, Any]
) -> Callable[..., Any]:
    """What runs `fun` on one device, by jax where it is no file."""
    if isinstance(fun, LoadedProgram):
        return jit(fun, Mesh({"one": 1}))
    if not isinstance(partitioned, FilteredFunction):
        return jax.jit(fun, **static)
    arrays_only = jax.jit(lambda *args: hidden(fun(*revealed(args))))
    return lambda *args: arrays_only(*hidden(args))


def filled(args: Iterable[Any], random: np.random.Generator) -> list[Any]:
    """The arguments, abstract ones with numbers, with arrays on the host."""
    return [jax.tree.map(lambda leaf: _array(leaf, random=random), arg) for arg in args]


def _filled(args: Sequence[Any], traced: Traced, fill: Callable[[Any, bool], Any]) -> list[Any]:
    """The arguments, with arrays on the host: a donated one is then there for both runs.

    State that only updates read, such as an optimizer's, is zero where it is a shape, as when a training begins.
    """
    leaves, tree = jax.tree.flatten(list(args))
    program, positions = traced.program, range(len(traced.program.arguments))
    state = set(next_values(program).values())
    updated = [n in state and only_updated(program, program.arguments[n]) for n in positions]
    begins = list(traced.of_leaves(updated)) if any(n in state and not updated[n] for n in positions) else []
    if len(begins) != len(leaves):
        begins = [False] * len(leaves)
    return jax.tree.unflatten(tree, [fill(leaf, zero) for leaf, zero in zip(leaves, begins, strict=True)])


def _array(leaf: Any, zero: bool = False, *, random: np.random.Generator) -> Any:
    """An array for a shape: floats as large as keep the size of what is multiplied with them, integers 0 and 1."""
    if isinstance(leaf, jax.ShapeDtypeStruct):
        if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.split(jax.random.key(int(random.integers(2**31))), leaf.shape)
        if zero:
            return np.zeros(leaf.shape, leaf.dtype)
        if jax.numpy.issubdtype(leaf.dtype, np.inexact):
            fan_in = leaf.shape[-2] if len(leaf.shape) > 1 else 1
            return np.asarray(random.standard_normal(leaf.shape) * max(1, fan_in) ** -0.5).astype(leaf.dtype)
        return random.integers(0, 2, leaf.shape).astype(leaf.dtype)
    is_key = isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(leaf) if isinstance(leaf, jax.Array) and not is_key else leaf


def _rounding_step(dtype: str) -> float:
    """Of a float type by its StableHLO name; 0 of others."""
    return float(jax.numpy.finfo(numpy_dtype(dtype)).eps) if dtype.startswith(("f", "bf", "complex")) else 0.0


def compared(name: str, expected: Any, found: Any, tolerance: float | None, least: float = 0.0) -> OutputDifference:
    """How far `found` is from `expected`; `least` is the rounding step of the narrowest type on the way."""
    expected, found = bits_of(expected), bits_of(found)
    is_inexact = jax.numpy.issubdtype(expected.dtype, np.inexact)
    wide = np.complex128 if jax.numpy.issubdtype(expected.dtype, np.complexfloating) else np.float64
    want, got = np.asarray(expected).astype(wide), np.asarray(found).astype(wide)
    same = (np.isnan(want) & np.isnan(got)) | (want == got)
    with np.errstate(invalid="ignore", over="ignore"):  # of infinities, which `same` has where they agree
        apart = np.where(same, 0.0, np.abs(want - got))
    largest = float(np.max(np.abs(want[np.isfinite(want)]), initial=0.0))
    share = 0.0
    if is_inexact:
        share = max(float(jax.numpy.finfo(expected.dtype).eps), least) ** 0.5 if tolerance is None else tolerance
    difference = float(np.max(apart, initial=0.0))
    type_ = f"{expected.dtype.name}[{','.join(map(str, expected.shape))}]"
    agrees, not_finite = bool((apart <= share * largest).all()), int(np.sum(same & ~np.isfinite(want)))
    return OutputDifference(name, type_, difference, largest, agrees, want.size, not_finite)


def _name(path: Sequence[Any]) -> str:
    return jax.tree_util.keystr(tuple(path), simple=True, separator="/")
