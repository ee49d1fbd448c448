"""`ap.kernel`: a function of arrays that stays one op, sliced as its twin in plain jax is, or as a rule says.

attend = ap.kernel(flash_attention, like=plain_attention)        what holds for the twin holds for the kernel
attend = ap.kernel(ffi_attention, rule="b h s d, b h t d, b h t d -> b h s d; tile b h")
attend(q, k, v, causal=True)                                     arrays are operands, all else is part of the kernel
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from autopart.api.kernels.gradient import differentiated, with_gradient
from autopart.api.kernels.kernel_primitive import Aval, Called
from autopart.api.kernels.known_kernels import KERNELS
from autopart.api.kernels.named_functions import known_function
from autopart.api.kernels.twin import twin_factors, twin_work
from autopart.base.arguments import FUNCTION, NONE, TEXT, Kind, check, number, sequence
from autopart.base.errors import ArgumentError
from autopart.core.doors.jax_internals import is_array as is_array_of
from autopart.core.kernel_calls.kernel_body import Flat
from autopart.core.kernel_calls.sharding_rule import Factors, factors_of
from autopart.core.ops.traits import Work

_GRADIENT = Kind('"own" or "twin"', lambda v: isinstance(v, str) and v in ("own", "twin"))


def kernel(
    fn: Callable[..., Any],
    *,
    like: Callable[..., Any] | None = None,
    rule: str | None = None,
    name: str | None = None,
    gradient: str = "own",
    flop: float | None = None,
    platforms: Sequence[str] | None = None,
) -> Kernel:
    """`fn` as one op of a partitioned program, whatever is inside it: Pallas, a foreign function, a library's kernel.

    `like` is its twin: a plain jax function of the same arguments. Whatever slices the twin, so that each slice is the
    twin of a slice and parts are at most reduced at the end, slices the kernel; its flop are the twin's; and the twin
    runs where jax cannot lower the kernel, as on host devices, and on other than `platforms`; a kernel that cannot even
    be traced without its device is planned as its twin. `rule` says how it is sliced where there is no twin, in the
    notation of `jax.experimental.custom_partitioning` and two clauses of our own:

        "b h s d, b h t d, b h t d -> b h s d; tile b h; reduce -"      t and d are whole, b and h are sliced
        "m k, k n -> m n; tile m n; reduce k"                           slices of k leave parts, which are added up
        "s d, t d, @s -> s d; tile s"                                   a number grows by where the slice of s starts

    jax's own paged attention for TPUs is known by name, and needs neither.

    On a device the kernel is `fn` itself, traced for what the device holds. The gradient goes through the `custom_vjp`
    of `fn`, whose two directions are kernels too; with `gradient="twin"` it is the twin's. `flop` are those of a call,
    where a twin does not say them. `name` is what reports call it, by default the function's. Raises `ArgumentError`
    for arguments of other types, without a twin and a rule, and, when it is called, for a rule that does not fit.
    """
    check("ap.kernel", fn=(fn, FUNCTION), like=(like, FUNCTION | NONE), rule=(rule, TEXT | NONE))
    check("ap.kernel", platforms=(platforms, sequence(TEXT, '"tpu", "cuda", "rocm" or "cpu", in a list') | NONE))
    check("ap.kernel", name=(name, TEXT | NONE), gradient=(gradient, _GRADIENT), flop=(flop, number(0) | NONE))
    known = known_function(fn) if like is None and rule is None else None
    if known is not None:
        like = known.twin
    if like is None and (rule is None or gradient == "twin"):
        raise ArgumentError(
            f"ap.kernel: {'the gradient of a twin' if rule else 'neither a twin nor a rule'}",
            why="what is inside a kernel says nothing of how it may be sliced",
            hint='like=a plain jax function of the same arguments, or rule="b s d, d -> b s d; tile b s"',
        )
    called = name or str(getattr(getattr(fn, "func", fn), "__name__", type(fn).__name__))
    ruled = known.rule if known is not None else None if rule is None else lambda _: rule
    return Kernel(fn, like, ruled, called, gradient, flop, None if platforms is None else tuple(platforms))


@dataclass(frozen=True, eq=False)
class Kernel:
    """What `kernel` returns: a function of the same arguments."""

    fn: Callable[..., Any]
    like: Callable[..., Any] | None
    rule: Callable[[Sequence[tuple[int, ...]]], str] | None
    name: str
    gradient: str
    flop: float | None
    platforms: tuple[str, ...] | None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What `fn` computes."""
        call, arrays = _Arguments.of(args, kwargs)
        try:
            function, tree = self._differentiated(call)
        except TypeError as error:
            if "unhashable" not in str(error):
                raise
            why = "an argument that is no array is a part of the kernel"
            raise ArgumentError(f"{self.name}: {error}", why=why, hint="an argument that can be hashed") from None
        return jax.tree.unflatten(tree, function(*arrays))

    def called(self, *args: Any, **kwargs: Any) -> tuple[Called, list[Any]]:
        """The call that these arguments make, without its gradient, and its operands."""
        call, arrays = _Arguments.of(args, kwargs)
        return self._called(call)[0], arrays

    @functools.lru_cache(maxsize=512)  # noqa: B019 (a kernel lives as long as the module that it stands in)
    def _differentiated(self, call: _Arguments) -> tuple[Callable[..., Any], Any]:
        called, tree = self._called(call)
        return differentiated(called, self.gradient), tree

    def _called(self, call: _Arguments) -> tuple[Called, Any]:
        """(the call, the tree of its results)."""
        if any(jax.numpy.issubdtype(a.dtype, jax.dtypes.extended) for a in call.avals):
            raise ArgumentError(
                f"{self.name}: a key of random numbers is no operand of a kernel",
                why="a kernel reads arrays of numbers",
                hint="jax.random.key_data(key), and jax.random.wrap_key_data inside",
            )
        function, like = call.flat(self.fn), None if self.like is None else call.flat(self.like)
        fn = self.fn
        if like is not None and self.like is not None and not self._is_traceable(call):
            fn, function = self.like, with_gradient(like)
        tree = jax.tree.structure(jax.eval_shape(lambda *arrays: call.apply(fn, arrays), *call.avals))
        results = tuple(jax.eval_shape(function, *call.avals))
        shapes = [a.shape for a in call.avals], [r.shape for r in results]
        if like is not None and (there := _types(jax.eval_shape(like, *call.avals))) != _types(results):
            raise ArgumentError(
                f"{self.name} and its twin leave different arrays",
                why=f"the kernel {_types(results)}; the twin {there}",
                hint="a plain jax function of the same arguments, with results of the same shapes and types",
            )
        ruled = None if self.rule is None else factors_of(self.rule(shapes[0]), *shapes)

        @functools.cache
        def factors() -> tuple[Factors, str]:
            return (ruled, "") if ruled is not None else twin_factors(like or function, function, call.avals)

        @functools.cache
        def work() -> Work | None:
            if self.flop is not None:
                return Work(self.flop, 0.0)
            if like is None and self._is_said_to_run_elsewhere:
                return None
            return twin_work(like or function, call.avals, KERNELS)

        twin = None if like is None else lambda _: like
        made = Called(self.name, call.avals, results, lambda _: function, twin, factors, work, self.platforms)
        return made, tree

    @property
    def _is_said_to_run_elsewhere(self) -> bool:
        return self.platforms is not None and jax.default_backend() not in [_BACKENDS.get(p, p) for p in self.platforms]

    def _is_traceable(self, call: _Arguments) -> bool:
        """False where jax cannot even trace the kernel, since it asks for a device that is not here."""
        if not self._is_said_to_run_elsewhere:
            return True
        try:
            jax.eval_shape(call.flat(self.fn), *call.avals)
        except Exception:
            return False
        return True


_BACKENDS = {"cuda": "gpu", "rocm": "gpu"}
"""What jax calls the devices of platforms."""


@dataclass(frozen=True)
class _Arguments:
    """A call's arguments: which leaves of them are arrays, of which types, and the others."""

    tree: Any
    is_array: tuple[bool, ...]
    others: tuple[Any, ...]
    avals: tuple[Aval, ...]

    @staticmethod
    def of(args: Any, kwargs: Any) -> tuple[_Arguments, list[Any]]:
        """They, and the arrays."""
        leaves, tree = jax.tree.flatten((args, kwargs))
        is_array = tuple(isinstance(x, (jax.Array, np.ndarray, np.generic)) and is_array_of(x) for x in leaves)
        arrays = [leaf for leaf, array in zip(leaves, is_array, strict=True) if array]
        others = tuple(leaf for leaf, array in zip(leaves, is_array, strict=True) if not array)
        types = map(jax.typeof, arrays)
        return _Arguments(tree, is_array, others, tuple(Aval(t.shape, t.dtype) for t in types)), arrays

    def apply(self, function: Callable[..., Any], arrays: Sequence[Any]) -> Any:
        """The function of these arguments, with other arrays."""
        of_arrays, others = iter(arrays), iter(self.others)
        leaves = [next(of_arrays if array else others) for array in self.is_array]
        args, kwargs = jax.tree.unflatten(self.tree, leaves)
        return function(*args, **kwargs)

    def flat(self, function: Callable[..., Any]) -> Flat:
        """The function as one of arrays."""
        return lambda *arrays: jax.tree.leaves(self.apply(function, arrays))


def _types(avals: Sequence[Aval]) -> str:
    return ", ".join(f"{a.dtype.name}{list(a.shape)}" for a in avals)
