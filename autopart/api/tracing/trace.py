"""A JAX function, or a StableHLO file, with its pytrees taken off: what the compiler starts from.

train_step, (params, opt_state, batch)   ->   Program  arguments "params/w", ...  outputs "0/w", ...
                                              ties     output 0/w is params/w's next value (donated)
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import struct
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import jax
import jax.export
import numpy as np
from jax.core import Tracer
from jax.sharding import AbstractMesh, AxisType

from autopart.api.kernels.known_kernels import KERNELS
from autopart.api.tracing.closures import names_of_closures, warn_of_closures
from autopart.api.tracing.donated_ties import kept_state, tie_updates
from autopart.api.tracing.mutation import warning_of_changes
from autopart.base.arguments import FLAG, NONE, PATH, TEXT, check, instance, mapping, sequence, whole
from autopart.base.errors import CallError, PartitionError, ProgramError
from autopart.base.limits import Limits
from autopart.core.doors import jax_internals
from autopart.core.doors.jax_dispatch import static_arguments
from autopart.core.doors.jax_private import cudnn_assumed
from autopart.core.importer import (
    BYTECODE,
    check_in_child,
    check_text,
    needs_child,
    read_module,
    read_module_file,
)
from autopart.core.importer.closed_over import check_closed_over
from autopart.core.importer.host_calls import lowered
from autopart.core.importer.jaxprs import Dataflow, equations
from autopart.core.importer.mutable_refs import check_references
from autopart.core.importer.platform_choices import PlatformChoice, platform_choices
from autopart.core.mesh import Mesh
from autopart.core.passes import (
    APART,
    IMPORT_PASSES,
    DefaultGenerators,
    Pass,
    PassReport,
    pass_of,
    run_optional_passes,
    run_passes,
)
from autopart.core.program import Program

DEFAULT_LIMITS = Limits()

T = TypeVar("T")


@dataclass(frozen=True)
class Options:
    """What decides which program is partitioned: the arguments of `jax.jit`, passes after the import's own, and whether
    the model's sharding constraints are kept.
    """

    static_argnums: tuple[int, ...] = ()
    static_argnames: tuple[str, ...] = ()
    donate_argnums: tuple[int, ...] = ()
    donate_argnames: tuple[str, ...] = ()
    passes: tuple[str | Pass, ...] = ()
    constraints: bool = True
    keep_unused: bool = False


@dataclass(frozen=True)
class Traced:
    """A program and the pytrees its flat arguments and outputs came from.

    in_tree, out_tree   of ((args, kwargs) without the static ones) and of the result
    in_avals, out_avals one abstract value per argument and output of the program: of what the function closes over,
                        then of each leaf; PRNG keys keep their key dtype here, and are raw bits in `program`.
                        Those of outputs say which types are weak
    platform            what it was lowered for, and `again` lowers it for another, or with passes before all others;
                        None for a file, which does not say
    choices             where the function computes something else on another platform
    passes              what each pass over the program took and did
    kept_state          the top-level arguments that are not donated although their next value comes back: by name the
                        positions of their leaves among the program's arguments
    on_host             the outputs that the function puts into the host's memory
    whole               reads it with ops left whole that passes took apart for tiles; None where they took none
    """

    program: Program
    in_tree: Any
    out_tree: Any
    in_avals: tuple[jax.ShapeDtypeStruct, ...]
    out_avals: tuple[jax.ShapeDtypeStruct, ...]
    platform: str | None = None
    again: Callable[..., Traced] | None = field(default=None, repr=False, compare=False)
    choices: tuple[PlatformChoice, ...] = field(default=(), repr=False, compare=False)
    passes: tuple[PassReport, ...] = field(default=(), repr=False, compare=False)
    kept_state: Mapping[str, range] = field(default_factory=dict[str, range], repr=False, compare=False)
    on_host: frozenset[int] = frozenset()
    whole: Callable[[], Traced] | None = field(default=None, repr=False, compare=False)
    _read_with: dict[Pass, Traced] = field(
        default_factory=dict["Pass", "Traced"], init=False, repr=False, compare=False
    )

    def read_with(self, early: Pass) -> Traced:
        """The program read once more, with a pass before all others; after all others where it comes from a file."""
        if early not in self._read_with:
            again = self.again
            self._read_with[early] = self.after([early]) if again is None else again(self.platform, (early,))
        return self._read_with[early]

    @property
    def closed_over(self) -> tuple[np.ndarray, ...]:
        """The arrays of the program's first arguments, which no call brings in."""
        return self.program.source.closed_over

    def of_leaves(self, each: Sequence[T]) -> Sequence[T]:
        """Of a list with one entry for each argument of the program, those of a call's leaves."""
        return each[len(self.closed_over) :]

    def after(self, passes: Sequence[str | Pass]) -> Traced:
        """The same with a program that has gone through `passes`."""
        if not passes:
            return self
        program, reports = run_passes(self.program, passes)
        whole = self.whole
        return replace(
            self,
            program=program,
            passes=(*self.passes, *reports),
            whole=None if whole is None else lambda: whole().after(passes),
        )

    def imported(self) -> Traced:
        """The same with a program that has gone through the import's own passes."""
        made = self.after_optional(IMPORT_PASSES)
        apart = any(APART in spec.attributes for spec in made.program.specs)
        whole = [found for one in IMPORT_PASSES if (found := one.whole()) is not None]
        return replace(made, whole=lambda: self.after_optional(whole)) if apart else made

    def after_optional(self, passes: Sequence[Pass]) -> Traced:
        """The same with a program that has gone through those of `passes` that do not fail."""
        program, reports = run_optional_passes(self.program, passes)
        return replace(self, program=program, passes=(*self.passes, *reports))


@dataclass(frozen=True)
class LoadedProgram:
    """A StableHLO module from a file; accepted wherever a JAX function is. Its arguments and outputs are flat."""

    traced: Traced
    path: str
    __name__: str = field(default="main")

    @property
    def argument_names(self) -> list[str]:
        """Names of the arguments, in order."""
        return [*self.traced.of_leaves(self.traced.program.argument_names)]


_NAMES = sequence(TEXT, "a list of names, one for each argument") | NONE
_TIES = mapping(whole(0), whole(0), "a dict of output positions to argument positions") | NONE


def load(
    path: str | Path,
    *,
    argument_names: Sequence[str] | None = None,
    ties: Mapping[int, int] | None = None,
    limits: Limits = DEFAULT_LIMITS,
    trusted: bool = False,
) -> LoadedProgram:
    """A StableHLO module from text, gzipped text or bytecode, also in a file that `jax.export` serialized.

    Arguments are named by `argument_names`, else by their `loc`, else arg0, arg1, ...; `ties` maps output positions
    to the argument positions they update (default: the module's `tf.aliasing_output`). Raises `ProgramError` where the
    file cannot be read, is not a StableHLO module, has dynamic shapes, recursive calls or ties that cannot be, or
    exceeds `limits`.

    MLIR's bytecode reader ends Python on some damaged files. Bytecode, and the rare text that could do the same, is
    therefore read in a child process first, which takes some two seconds and as long again as the loading itself;
    `trusted=True` leaves that out, for files that come from yourself.
    """
    check("ap.load", path=(path, PATH), argument_names=(argument_names, _NAMES), ties=(ties, _TIES))
    check("ap.load", limits=(limits, instance("an ap.Limits(...)", Limits)), trusted=(trusted, FLAG))
    data = _exported(read_module_file(Path(path), limits), str(path))
    if not data.startswith(BYTECODE):
        check_text(data, limits)
    if not trusted and needs_child(data):
        check_in_child(data, str(path), limits)
    module = jax_internals.parse_module(data, str(path))
    program = read_module(module, argument_names=argument_names, ties=ties, limits=limits, lift=True)
    if any(str(s.attributes.get("call_target_name", "")).startswith("lapack_") for s in program.specs):
        jax_internals.register_lapack()
    avals = tuple(_aval(program, v) for v in program.arguments)
    outs = tuple(_aval(program, v) for v in program.outputs)
    in_tree = jax.tree.structure((avals[len(program.source.closed_over) :], {}))
    traced = Traced(program, in_tree, jax.tree.structure(outs), avals, outs)
    return LoadedProgram(traced.imported(), str(path))


def _exported(data: bytes, path: str) -> bytes:
    """The module in what `jax.export.Exported.serialize` wrote, else the data as they are."""
    if data.find(BYTECODE) <= 0:
        return data
    try:
        return jax.export.deserialize(bytearray(data)).mlir_module_serialized
    except (AttributeError, IndexError, NotImplementedError, TypeError, ValueError, struct.error) as error:
        why = " ".join(str(error).split())[:200]
        raise ProgramError(f"{path} is no StableHLO module, and no function that jax.export wrote", why=why) from None


def trace(
    fun: Callable | LoadedProgram, options: Options, platform: str, mesh: Mesh, args: tuple, kwargs: dict
) -> Traced:
    """Traces `fun` for abstract or concrete arguments and imports it, lowered for `platform`.

    Where it asks for the mesh of the context, and no mesh is set, it gets `mesh`.
    """
    if isinstance(fun, LoadedProgram):
        leaves, tree = jax.tree.flatten((args, kwargs))
        if leaves and (
            tree != fun.traced.in_tree or not _same_types(leaves, fun.traced.of_leaves(fun.traced.in_avals))
        ):
            wanted = [f"{a.dtype.name}{list(a.shape)}" for a in fun.traced.of_leaves(fun.traced.in_avals)]
            raise CallError(
                f"{fun.path} takes {len(wanted)} arrays, got {len(leaves)}"
                if len(wanted) != len(leaves)
                else f"{fun.path} was called with arguments of other shapes or types",
                why=f"it takes {', '.join(wanted[:6])}{', ...' if len(wanted) > 6 else ''}",
            )
        return _keeping(fun.traced, options.keep_unused).after(options.passes)
    watched = jitted(fun, options)
    args, kwargs = _without_shardings(watched, args, kwargs)
    around = jax.sharding.get_abstract_mesh()
    traced = (
        _without_explicit_axes(watched, mesh, platform, args, kwargs)
        if AxisType.Explicit in around.axis_types
        else None
    )
    with _auto(around) if traced is not None else contextlib.nullcontext():
        made = _lowered(fun, options, traced or _traced(watched, mesh, platform, args, kwargs), platform)
    warn_of_closures(watched.__name__, made.program, len(made.closed_over))
    return made


def _keeping(traced: Traced, unused: bool) -> Traced:
    """The same, with or without the arguments that it does not use."""
    program, whole = replace(traced.program, keep_unused=unused), traced.whole
    return replace(traced, program=program, whole=None if whole is None else lambda: _keeping(whole(), unused))


def _auto(mesh: AbstractMesh) -> Any:
    """A context in which the axes of the mesh that is set are no part of types, each of which would be a constraint."""
    axes = (AxisType.Auto,) * len(mesh.axis_names)
    return jax.sharding.use_abstract_mesh(AbstractMesh(mesh.axis_sizes, mesh.axis_names, axes))


def _without_explicit_axes(
    watched: Any, mesh: Mesh, platform: str, args: tuple, kwargs: dict
) -> jax.stages.Traced | None:
    """The function traced in such a context; None for one that asks for explicit axes (`jax.sharding.reshard`)."""
    try:
        with _auto(jax.sharding.get_abstract_mesh()):
            traced = _traced(watched, mesh, platform, args, kwargs)
    except PartitionError:
        raise
    except ValueError as error:
        if "AxisType.Auto" not in str(error):
            raise
        return None
    return None if any(e.primitive.name == "reshard" for e in equations(traced.jaxpr)) else traced


def _traced(watched: Any, mesh: Mesh, platform: str, args: tuple, kwargs: dict) -> jax.stages.Traced:
    """The function traced as it is, so that what depends on a mesh in context does as it does without; then, where it
    cannot do without, over `mesh`: a `shard_map` or a constraint that names axes alone."""
    try:
        return watched.trace(*args, **kwargs)
    except PartitionError:
        raise
    except (RuntimeError, ValueError) as error:
        if "cuDNN is not detected" in str(error) and platform == "cuda":
            with cudnn_assumed():
                return watched.trace(*args, **kwargs)
        if "cuDNN" in str(error):
            raise ProgramError(
                f"jax cannot trace {watched.__name__} for {platform}: {error}",
                why="cuDNN attention is traced for a mesh of GPUs, or where a GPU with cuDNN is",
                hint='ap.Mesh(..., device="h100"), or jax.nn.dot_product_attention(..., implementation="xla")',
            ) from error
        if "mesh" not in str(error) or not jax.sharding.get_abstract_mesh().empty:
            raise
        axes = (AxisType.Auto,) * len(mesh.axis_names)
        with jax.sharding.use_abstract_mesh(AbstractMesh(mesh.axis_sizes, mesh.axis_names, axes)):
            return _over_ours(watched, mesh, error, args, kwargs)


def _over_ours(watched: Any, mesh: Mesh, before: Exception, args: tuple, kwargs: dict) -> jax.stages.Traced:
    """The function traced where `mesh` is set. Raises `ProgramError` where that is not the mesh it wants either, and
    `before` where a mesh in context makes no difference."""
    try:
        return watched.trace(*args, **kwargs)
    except (RuntimeError, ValueError) as error:
        if str(error) == str(before):
            raise before from None
        raise ProgramError(
            f"{watched.__name__} wants a mesh in context: {before}",
            why=f"over {mesh}, which ap.jit was given, jax says: {error}",
            hint="an ap.Mesh with the axes that the function names, or jax.set_mesh(...) around lower and the call",
        ) from error


def jitted(fun: Callable, options: Options) -> Any:
    """`fun` as `jax.jit` takes it, which ends the process where it is given twice what nothing can refer to weakly."""
    return jax.jit(
        warning_of_changes(fun),
        static_argnums=options.static_argnums or None,
        static_argnames=options.static_argnames or None,
        donate_argnums=options.donate_argnums or None,
        donate_argnames=options.donate_argnames or None,
        keep_unused=True,
    )


def _without_shardings(jitted: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """The arguments of a call, wherever they are: the program is traced for no mesh, and for no devices.

    Static ones stay what they are.
    """
    numbers, names = static_arguments(jitted)
    static = {n % len(args) for n in numbers if -len(args) <= n < len(args)}
    return (
        tuple(a if n in static else jax.tree.map(_without_sharding, a) for n, a in enumerate(args)),
        {k: v if k in names else jax.tree.map(_without_sharding, v) for k, v in kwargs.items()},
    )


def _without_sharding(x: Any) -> Any:
    """An array as its shape and type. One in the host's memory stays, since that is a part of its type."""
    if not isinstance(x, (jax.Array, jax.ShapeDtypeStruct)):
        return x
    kind = jax.typeof(x)
    explicit = isinstance(x, jax.Array) and not kind.sharding.mesh.empty
    placed = not isinstance(x, Tracer) and kind.sharding.mesh.empty and kind.memory_space == jax.memory.Space.Device
    return jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=kind.weak_type) if explicit or placed else x


def _is_on_host(aval: Any) -> bool:
    return getattr(aval, "memory_space", None) == jax.memory.Space.Host


def _lowered(
    fun: Callable, options: Options, traced: jax.stages.Traced, platform: str, early: Sequence[Pass] = ()
) -> Traced:
    """The program of a traced function, lowered for `platform`, with passes before all others.

    Raises `ProgramError` where jax cannot lower it.
    """
    name, asked = getattr(fun, "__name__", repr(fun)), [*early, *map(pass_of, options.passes)]
    check_references(name, traced.jaxpr)
    check_closed_over(name, traced)
    with warnings.catch_warnings(), _refusals(fun, platform):
        warnings.filterwarnings("ignore", "Some donated buffers were not usable")
        module, bodies = lowered(traced, platform, KERNELS, unrolls=not any(one.before_import for one in asked))
    infos, in_tree = jax.tree.flatten(traced.args_info)
    outs, out_tree = jax.tree.flatten(traced.out_info)
    count = len(traced.args_info[0])
    names = _argument_names(fun, options, count, _paths(traced.args_info))
    without_arrays = [
        *_argument_names(fun, options, count, _paths_without_arrays(traced.args_info)),
        *(f"outputs/{name}" for name in _output_names(_paths_without_arrays(traced.out_info))),
    ]
    in_avals = tuple(jax.ShapeDtypeStruct(i.shape, i.dtype) for i in infos)
    out_avals = tuple(jax.ShapeDtypeStruct(o.shape, o.dtype, weak_type=o.weak_type) for o in outs)
    donated = frozenset(i for i, info in enumerate(infos) if info.donated)
    dataflow = Dataflow(traced.jaxpr)
    ties = tie_updates(traced.args_info, traced.out_info, dataflow)
    kept = kept_state(traced.args_info, traced.out_info, dataflow)
    try:
        program = read_module(
            cast(jax_internals.ir.Module, module.compiler_ir("stablehlo")),
            argument_names=names,
            output_names=_output_names(_paths(traced.out_info)),
            ties=ties,
            donated=donated,
            bodies=bodies,
            constraints=options.constraints,
            keep_unused=options.keep_unused,
            without_arrays=without_arrays,
            lift=True,
        )
    except ProgramError as error:
        raise error.blamed_on(name) from None
    if closed_over := program.source.closed_over:
        program.argument_names[: len(closed_over)] = names_of_closures(fun, closed_over)
        in_avals = (*(jax.ShapeDtypeStruct(array.shape, array.dtype) for array in closed_over), *in_avals)
    again = functools.partial(_lowered, fun, options, traced)
    choices = platform_choices(traced.jaxpr)
    kept_by_name = {
        names[leaves.start].partition("/")[0]: range(leaves.start + len(closed_over), leaves.stop + len(closed_over))
        for leaves in kept
    }
    read = Traced(
        program, in_tree, out_tree, in_avals, out_avals, platform, again, choices, kept_state=kept_by_name,
        on_host=frozenset(n for n, a in enumerate(traced.jaxpr.out_avals) if _is_on_host(a)),
    )  # fmt: skip
    read = read.after_optional((DefaultGenerators(platform),)).after([one for one in asked if one.before_import])
    return read.imported().after([one for one in asked if not one.before_import])


@contextlib.contextmanager
def _refusals(fun: Callable, platform: str) -> Generator[None]:
    """What jax has for other platforms only, such as `eig` or what was exported for them, is a `ProgramError`."""
    try:
        yield
    except PartitionError:
        raise
    except (NotImplementedError, ValueError) as error:
        raise ProgramError(
            f"jax cannot lower {getattr(fun, '__name__', repr(fun))} for {platform}",
            why=str(error).partition("\n")[0],
            hint=f'a mesh of another device, jax.pure_callback, or jax.export.export with platforms=["{platform}"]',
        ) from error


def _same_types(leaves: Sequence[Any], avals: Sequence[jax.ShapeDtypeStruct]) -> bool:
    return all(
        np.shape(x) == a.shape and jax.dtypes.result_type(x) == a.dtype for x, a in zip(leaves, avals, strict=True)
    )


def _aval(program: Program, value: int) -> jax.ShapeDtypeStruct:
    type_ = program.type_of(value)
    return jax.ShapeDtypeStruct(type_.shape, jax_internals.numpy_dtype(type_.dtype))


def key_of(entry: Any) -> str:
    """A part of a pytree path, as names write it."""
    for attribute in ("key", "name", "idx"):
        if hasattr(entry, attribute):
            return str(getattr(entry, attribute))
    return str(entry)


def _paths(tree: Any) -> list[Any]:
    """The pytree path of each leaf."""
    return [path for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]


def _paths_without_arrays(tree: Any) -> list[Any]:
    """The path of each part, as large as can be, that has no leaves."""
    parts = jax.tree_util.tree_flatten_with_path(tree, lambda part: not jax.tree.leaves(part))[0]
    return [path for path, part in parts if path and not jax.tree.leaves(part)]


def _argument_names(fun: Callable, options: Options, count: int, paths: Sequence[Any]) -> list[str]:
    """Names of paths in (args, kwargs): that of one of the `count` positional parameters, then the path below it."""
    positional = _parameter_names(fun, options, count)
    names = []
    for group, first, *rest in (path for path in paths if len(path) > 1):
        head = positional[first.idx] if key_of(group) == "0" else key_of(first)
        names.append("/".join([head, *map(key_of, rest)]))
    return names


def _output_names(paths: Sequence[Any]) -> list[str]:
    return ["/".join(key_of(k) for k in path) for path in paths]


def _parameter_names(fun: Callable, options: Options, count: int) -> list[str]:
    """Names of the dynamic positional arguments; arg0, arg1, ... where the signature does not tell."""
    try:
        parameters = list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names: list[str] = []
    static = {n % len(parameters) if parameters else n for n in options.static_argnums}
    for index, parameter in enumerate(parameters):
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}/{i}" for i in range(count - len(names))]
            break
        if parameter.kind is parameter.KEYWORD_ONLY or parameter.kind is parameter.VAR_KEYWORD:
            break
        if index not in static and parameter.name not in options.static_argnames:
            names.append(parameter.name)
    return [*names, *(f"arg{i}" for i in range(len(names), count))][:count]
