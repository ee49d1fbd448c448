"""How Numba compiles a kernel: it is lowered once, and optimised with all that it calls where Python calls it.

    propagate        part       its LLVM IR as it was lowered, which calls that of fitting_mappings, tiling, _push, ...
                     entry      a wrapper for Python + the IR of all these, optimised as one: machine code
    tile_in_turn     entry      the same with the IR of propagate in it
    _push            part       Python never calls it: no entry, no machine code of its own

Left to itself, Numba optimises each function that a kernel calls, makes machine code of it and a wrapper for Python,
links that into each of its callers, and optimises it there again; and it does so for each type of integer that a
caller happens to pass. Here integers are 64 bits wide between kernels, and a kernel has one signature. Nor is it found
out anew in each kernel which of Numba's implementations of `+`, `<` and `[]` is the one for two integers or an array.
"""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false, reportUntypedBaseClass=false
# pyright: reportIncompatibleMethodOverride=false
# (Numba offers no other way to say how a function is optimised, and its classes carry no types)
from __future__ import annotations

import copy
from collections.abc import Iterator
from types import BuiltinFunctionType
from typing import Any, ClassVar

from numba.core import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase
from numba.core.compiler_lock import require_global_compiler_lock
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.dispatcher import _FunctionCompiler
from numba.core.environment import Environment, lookup_environment
from numba.core.registry import CPUDispatcher
from numba.core.typed_passes import (
    AnnotateTypes,
    IRLegalization,
    NativeLowering,
    NoPythonBackend,
    NopythonTypeInference,
    PreLowerStripPhis,
)
from numba.core.untyped_passes import (
    DeadBranchPrune,
    FixupArgs,
    GenericRewrites,
    IRProcessing,
    ReconstructSSA,
    RewriteSemanticConstants,
    TranslateByteCode,
)

from autopart.base.gc_pause import gc_paused
from autopart.base.jit.tuples_by_reference import References

PASSES: tuple[Any, ...] = (
    TranslateByteCode, FixupArgs, IRProcessing, RewriteSemanticConstants, DeadBranchPrune, GenericRewrites,
    ReconstructSSA, NopythonTypeInference, PreLowerStripPhis, IRLegalization, AnnotateTypes,
)  # fmt: skip
"""Of Numba's passes those that kernels need: they have no closures, no `with`, no lists of several types."""

ENVIRONMENT = "_ZN08NumbaEnv"
"""How the names of global variables begin that hold what a function needs of Python to raise an error."""


class KernelDispatcher(CPUDispatcher):
    """A kernel as Python calls it; `part` is what other kernels call."""

    def __init__(self, py_func: Any, locals: Any = None, targetoptions: Any = None):
        super().__init__(py_func, locals, targetoptions)
        self.part = PartDispatcher(py_func, locals, targetoptions)
        self._compiler = _EntryCompiler(self.part, targetoptions)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """The signature by which a kernel calls the part."""
        return self.part.get_call_template(args, kws)

    def get_overload(self, sig: Any) -> Any:
        """What stands for the part where a kernel calls it."""
        return self.part.get_overload(sig)

    def compile(self, sig: Any) -> Any:
        """Compiles the entry, or finds it on disk."""
        with gc_paused():
            return super().compile(wide_signature(sig))


class PartDispatcher(CPUDispatcher):
    """A kernel as kernels call it."""

    def __init__(self, py_func: Any, locals: Any = None, targetoptions: Any = None):
        super().__init__(py_func, locals, {**(targetoptions or {}), "no_cpython_wrapper": True}, _PartPasses)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """The signature for arguments of given types; integers become wide on the way."""
        _, args = self._compiler.fold_argument_types(args, kws)
        return super().get_call_template(tuple(map(_wide, args)), {})


class _EntryCompiler(_FunctionCompiler):
    """Makes an entry of a part."""

    def __init__(self, part: PartDispatcher, targetoptions: Any):
        super().__init__(part.py_func, part.targetdescr, targetoptions, part.locals, _PartPasses)
        self._part = part

    def _compile_core(self, args: Any, return_type: Any) -> Any:
        self._part.compile(args)
        part = self._part.overloads[tuple(args)]
        context, entry = part.target_context, copy.copy(part.fndesc)
        entry.env_name += (
            "Entry"  # the wrapper keeps constants that the part, loaded within another entry, does not have
        )
        environment = Environment.from_fndesc(entry)
        library = EntryLibrary(context.codegen(), entry.qualname)
        library.enable_object_caching()
        library.loops_become_vectors = "fastmath" in self.targetoptions
        library.add_linking_library(part.library)
        context.create_cpython_wrapper(library, entry, environment, part.call_helper)
        found = context.get_executable(library, entry, environment)
        return part._replace(library=library, entry_point=found, metadata={}, fndesc=entry, environment=environment)


class PartLibrary(JITCodeLibrary):
    """The LLVM module of a part. There is no machine code, and so none to be told of its environment."""

    def add_llvm_module(self, ll_module: Any) -> None:
        """Keeps the module as it was lowered."""
        ll_module.data_layout = self._codegen._data_layout
        for function in ll_module.functions:
            if not function.is_declaration:
                function.linkage = "linkonce_odr"
        self._final_module = ll_module

    def finalize(self) -> None:
        """Nothing is to be done before it is linked into an entry."""
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """None."""
        return 0

    @property
    def codegen(self) -> Any:
        """What Numba tells of environments."""
        return self

    def set_env(self, env_name: str, env: Any) -> None:
        """Each entry does it for the parts in it."""

    def called(self) -> Iterator[Any]:
        """The libraries of all that it calls, and of what is called there."""
        for library in self._linking_libraries:
            yield library
            if isinstance(library, PartLibrary):
                yield from library.called()


class EntryLibrary(PartLibrary):
    """A wrapper for Python, and all that it calls.

    Loops of kernels walk along pointers and have branches. What LLVM does with them at its first level is as fast as
    what it does at the second, and takes three quarters of the time. It looks for loops to make vectors of at the
    second.
    """

    loops_become_vectors = False

    def add_llvm_module(self, ll_module: Any) -> None:
        """Adds the wrapper."""
        ll_module.data_layout = self._codegen._data_layout
        self._final_module.link_in(ll_module)

    def finalize(self) -> None:
        """Links in the parts, optimises them as one function, and makes machine code."""
        require_global_compiler_lock()
        self._raise_if_finalized()
        self._codegen._check_llvm_bugs()
        wrapper = {function.name for function in self._final_module.functions if not function.is_declaration}
        for library in dict.fromkeys(self.called()):
            if hasattr(self, "_reload_init"):  # what is run when it is loaded; Numba 0.62 has none
                self._reload_init.update(library._reload_init)
            is_part = isinstance(library, PartLibrary)
            module = library._final_module if is_part else library._get_module_for_linking()
            self._final_module.link_in(module, preserve=True)
        for function in self._final_module.functions:
            if not function.is_declaration and function.name not in wrapper:
                function.linkage = "internal"
        vectors = self.loops_become_vectors
        manager, builder = self._codegen._module_pass_manager(
            opt=2 if vectors else 1, loop_vectorize=vectors, slp_vectorize=False
        )
        manager.run(self._final_module, builder)
        self._final_module.verify()
        self._finalize_final_module()

    def _finalize_specific(self) -> None:
        super()._finalize_specific()
        for variable in self._final_module.global_variables:
            found = lookup_environment(variable.name) if variable.name.startswith(ENVIRONMENT) else None
            if found is not None:
                self._codegen.set_env(variable.name, found)

    def get_pointer_to_function(self, name: str) -> int:
        """Where the wrapper is."""
        return JITCodeLibrary.get_pointer_to_function(self, name)

    @property
    def codegen(self) -> Any:
        """Numba's."""
        return self._codegen


@register_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(NativeLowering):
    """Lowers into a `PartLibrary`."""

    _name = "part_lowering"

    def run_pass(self, state: Any) -> bool:
        """Lowers one kernel."""
        state.library = PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        return super().run_pass(state)


class _PartPasses(CompilerBase):
    """Numba's pipeline, without passes that change nothing in kernels."""

    def __init__(self, typingctx: Any, *args: Any):
        super().__init__(_KnownTypes(typingctx), *args)
        context = self.state.targetctx  # a copy, of this compilation alone
        context.cached_internal_func = {}
        context.get_arg_packer = References(context).packer

    def define_pipelines(self) -> list[Any]:
        """The one pipeline."""
        manager = PassManager("kernel")
        for each in (*PASSES, _PartLowering, NoPythonBackend):
            manager.add_pass(each, each.__name__)
        manager.finalize()
        return [manager]


class _KnownTypes:
    """Numba's typing context, which remembers the signatures of operators and of what else Numba itself defines."""

    _known: ClassVar[dict[Any, Any]] = {}

    def __init__(self, context: Any):
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
        """The signature of a call."""
        if not isinstance(func, (types.Function, BuiltinFunctionType)) or kws:
            return self._context.resolve_function_type(func, args, kws)
        key = func, tuple(args)
        if key not in self._known:
            self._known[key] = self._context.resolve_function_type(func, args, kws)
        return self._known[key]


def functions_called(kernel: Any) -> list[Any]:
    """A kernel's Python function, and those of the kernels that it calls, in a fixed order."""
    found: dict[Any, None] = {}

    def look_in(function: Any) -> None:
        if function not in found:
            found[function] = None
            for name in function.__code__.co_names:
                callee = function.__globals__.get(name)
                if isinstance(callee, CPUDispatcher):
                    look_in(callee.py_func)

    look_in(kernel)
    return list(found)


def wide_signature(signature: Any) -> Any:
    """The types of arguments, with integers of 64 bits; what is no tuple of types as it is."""
    return tuple(map(_wide, signature)) if isinstance(signature, tuple) else signature


def _wide(type_: Any) -> Any:
    """The integer type of 64 bits for every narrower one; other types as they are."""
    plain = types.unliteral(type_)
    return types.int64 if isinstance(plain, types.Integer) and plain.bitwidth < 64 else plain
