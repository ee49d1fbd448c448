"""The tile-mapping registry (TMR): which ops can become loops over a mesh axis, and how.

    @rule("transpose", traits=..., examples=(...))            one family file in core/ops/rules per kind of op
    def transpose(spec):                                      spec: kind, attributes and types, nothing else
        return [TileMapping((d,), (r,), size) for ...]

    mappings_of(spec)    the tile mappings of an op; () if it blocks by nature; None if nobody registered its kind
    localize(local)      the op on slices; by default the same op with local types

    traits_of(spec)      what the op is to all others: its work, whether it is a view, an update (`traits.py`)

A rule's `examples` are what tests prove it on: every mapping against XLA, and that no sound mapping is missing, unless
`omissions` says why. A kind that no mapping fits is registered with `blocked` and its reason, so that "unknown" and
"blocks by nature" stay apart. Custom calls are registered under their target name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autopart.base.arguments import ANYTHING, FLAG, FUNCTION, NONE, TEXT, check, instance, sequence
from autopart.base.errors import closest
from autopart.base.registry import Registry, RegistryError
from autopart.core.kernel_calls.call_config import config_of
from autopart.core.op import AND, ANY, OR, REDUCTION_NAMES, WHOLE, OpSpec, TileMapping
from autopart.core.ops.local_values import LocalOp, Value
from autopart.core.ops.passages import Passage
from autopart.core.ops.traits import UNKNOWN_FLOP, Traits, View

Mappings = Callable[[OpSpec], Iterable[TileMapping]]
Localize = Callable[[LocalOp], list[Value]]
Batched = Callable[[LocalOp], "list[Value] | None"]


@dataclass(frozen=True)
class Example:
    """One op on which a rule is tested: MLIR's generic form over operands %0, %1, ...

    text       `"stablehlo.abs"(%0) : (tensor<4x6xf32>) -> tensor<4x6xf32>`
    operands   what to feed, per operand: (low, high) for whole numbers in that range, high left out for integers;
               a range of floats for any number in it; "spd" for symmetric positive definite matrices; None for anything
    functions  functions of the module that the op refers to
    tolerance  relative, where slices are not computed bit by bit as the whole
    """

    text: str
    operands: tuple[Any, ...] = ()
    functions: str = ""
    tolerance: float = 0.0


@dataclass(frozen=True)
class Omission:
    """Mappings that are sound and yet not declared: `why`, and which ones (`covers(spec, mapping)`)."""

    why: str
    covers: Callable[[OpSpec, TileMapping], bool]


@dataclass(frozen=True)
class Rule:
    """What is registered for an op kind.

    family           the file it stands in
    blocked_because  why the kind, or a form of it, has no mappings at all, if so
    blocks           no form of it has any
    omissions        which sound mappings are left out, and why
    traits           its work, and what others need to know of it
    defaults         values of attributes that a program may leave out; a spec has them all
    structural       no op of the module has this kind: it is made when a program is read
    effect           the op does something besides computing its results, so it runs even where nobody reads them
    batched          the op with one more dim in front (`batching.py`)
    """

    kind: str
    family: str
    mappings: Mappings
    localize: Localize | None = None
    examples: tuple[Example, ...] = ()
    blocked_because: str = ""
    blocks: bool = False
    omissions: tuple[Omission, ...] = ()
    traits: Traits = UNKNOWN_FLOP
    structural: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)
    effect: bool = False
    batched: Batched | None = None


def _load() -> None:
    """Imports the families, which register themselves."""
    importlib.import_module("autopart.core.ops.rules")


RULES: Registry[Rule] = Registry("op rule", entry_points="autopart.rules", load=_load)
"""The rule of each op kind."""

CUSTOM_CALLS: Registry[Rule] = Registry("custom call", entry_points="autopart.custom_calls", load=_load)
"""The rule of each custom call, by target name."""

_MANY, _TRAITS = sequence(ANYTHING, "a list"), instance("traits, such as ap.op_traits.Elementwise()", Traits)


def rule(
    *kinds: str,
    traits: Traits | Callable[[str], Traits],
    localize: Localize | None = None,
    examples: Sequence[Example] | Callable[[str], Sequence[Example]] = (),
    omissions: Sequence[Omission] = (),
    structural: bool = False,
    defaults: Mapping[str, Any] | None = None,
    blocked_because: str | None = None,
    batched: Batched | None = None,
) -> Callable[[Mappings], Mappings]:
    """Registers a function from `OpSpec` to tile mappings for op kinds ("add"; "chlo.erf" with its prefix).

    The order of the mappings is their identity. Factors shorter than two may be given; they are dropped. Each dim of
    an operand or result may be in one mapping only, besides those that come `after` another or are only drawn.
    `traits` and `examples` may be functions of the kind; `blocked_because` says why some forms have no mapping.
    Raises `RegistryError` if a kind has a rule already, or for arguments of other types than these.
    """
    owner = "register_rule"
    check(owner, RegistryError, kinds=(kinds, sequence(TEXT, "the names of op kinds", least=1)))
    check(owner, RegistryError, traits=(traits, _TRAITS | FUNCTION), localize=(localize, FUNCTION | NONE))
    check(owner, RegistryError, examples=(examples, _MANY | FUNCTION), omissions=(omissions, _MANY))
    check(owner, RegistryError, batched=(batched, FUNCTION | NONE))
    check(owner, RegistryError, structural=(structural, FLAG), defaults=(defaults, instance("a dict", Mapping) | NONE))
    check(owner, RegistryError, blocked_because=(blocked_because, TEXT | NONE))

    def register(mappings: Mappings) -> Mappings:
        check(owner, RegistryError, mappings=(mappings, FUNCTION))
        for kind in kinds:
            tested = tuple(examples(kind) if callable(examples) else examples)
            family = mappings.__module__.rpartition(".")[2]
            stated, known = traits if isinstance(traits, Traits) else traits(kind), dict(defaults or {})
            new = Rule(
                kind,
                family,
                mappings,
                localize,
                tested,
                blocked_because or "",
                omissions=tuple(omissions),
                traits=stated,
                structural=structural,
                defaults=known,
                batched=batched,
            )
            RULES.add(kind, new, mappings.__module__)
        return mappings

    return register


def blocked(
    *kinds: str, reason: str, family: str, traits: Traits, examples: Sequence[Example] = (), effect: bool = False
) -> None:
    """Registers op kinds that cannot be sliced at all: known, and the reason is shown to users."""
    for kind in kinds:
        new = Rule(
            kind,
            family,
            lambda spec: (),
            examples=tuple(examples),
            blocked_because=reason,
            blocks=True,
            traits=traits,
            effect=effect,
        )
        RULES.add(kind, new, family)


def register_custom_call(
    target_name: str,
    *,
    traits: Traits = UNKNOWN_FLOP,
    localize: Localize | None = None,
    examples: Sequence[Example] = (),
    omissions: Sequence[Omission] = (),
    batched: Batched | None = None,
) -> Callable[[Mappings], Mappings]:
    """Registers a rule for the custom call `target_name`, as `rule` does for an op kind.

        def flop(spec):                             # q, k, v, out: [batch, heads, tokens, features]
            batch, heads, tokens, features = spec.operands[0].shape
            return 4 * batch * heads * tokens * tokens * features

        @ap.register_custom_call("my_attention", traits=ap.op_traits.Opaque(flop=flop, matrix=True))
        def my_attention(spec):
            sizes = spec.operands[0].shape
            return [ap.TileMapping((d, d, d), (d,), sizes[d]) for d in (0, 1)]

    `traits` are those of `ap.op_traits`; a call without any has unknown flop, and estimates list it. Raises
    `RegistryError` if the target has a rule already.
    """
    owner = "register_custom_call"
    check(owner, RegistryError, target_name=(target_name, TEXT), traits=(traits, _TRAITS))
    check(owner, RegistryError, localize=(localize, FUNCTION | NONE), examples=(examples, _MANY))
    check(owner, RegistryError, omissions=(omissions, _MANY), batched=(batched, FUNCTION | NONE))

    def register(mappings: Mappings) -> Mappings:
        check(owner, RegistryError, mappings=(mappings, FUNCTION))
        family = mappings.__module__.rpartition(".")[2]
        kind = f"custom_call @{target_name}"
        tested, omitted = tuple(examples), tuple(omissions)
        new = Rule(kind, family, mappings, localize, tested, omissions=omitted, traits=traits, batched=batched)
        CUSTOM_CALLS.add(target_name, new, mappings.__module__)
        return mappings

    return register


def known_kinds() -> tuple[str, ...]:
    """All registered op kinds, sorted; custom calls, as "custom_call @target", come last."""
    return tuple(rule.kind for rule in rules())


def rules() -> tuple[Rule, ...]:
    """All rules, op kinds first, each group sorted by name."""
    return tuple(table[k] for table in (RULES, CUSTOM_CALLS) for k in sorted(table))


def target_of(spec: OpSpec) -> str:
    """The target name of a custom call."""
    return str(spec.attributes.get("call_target_name", ""))


def rule_of(spec: OpSpec) -> Rule | None:
    """The rule of an op; None if its kind, or the custom call's target, has none.

    A custom call without a rule of its own, which declares that its leading dims are a batch, falls under that.
    """
    if spec.kind != "custom_call":
        return RULES.get(spec.kind)
    own = CUSTOM_CALLS.get(target_of(spec))
    return own or (RULES["custom_call"] if batch_dims_of(spec) else None)


def batch_dims_of(spec: OpSpec) -> int:
    """How many leading dims of all operands and results a custom call declares to be a batch, as jax writes it."""
    declared = spec.attributes.get("mhlo.frontend_attributes")
    number = declared.get("num_batch_dims") if isinstance(declared, Mapping) else None
    return int(number) if isinstance(number, str) and number.isdecimal() else 0


def default_attributes(kind: str) -> Mapping[str, Any]:
    """The values that StableHLO gives to attributes which an op of this kind leaves out, where its rule reads them."""
    return RULES[kind].defaults if kind in RULES else {}


def mappings_of(spec: OpSpec) -> tuple[TileMapping, ...] | None:
    """The tile mappings of an op, in the rule's order; None if it has no rule. Values without elements are not sliced.

    Raises `RegistryError` if the rule returns mappings that do not fit the op.
    """
    found = rule_of(spec)
    if found is None:
        return None
    mappings = tuple(m for m in found.mappings(spec) if m.extent > 1)
    _check(found, spec, mappings)
    return tuple(m for m in mappings if not _cuts_nothing(m, spec))


def _cuts_nothing(mapping: TileMapping, spec: OpSpec) -> bool:
    """True if the mapping slices a value that has no elements, which jax cannot place in parts."""
    values = zip((*mapping.operands, *mapping.results), (*spec.operands, *spec.results), strict=True)
    return any(0 in type_.shape and 0 <= action < len(type_.shape) for action, type_ in values)


def localize(local: LocalOp) -> list[Value]:
    """The values that the op leaves on one device, emitted by its rule."""
    found = rule_of(local.spec)
    if found is None or found.localize is None:
        return local.clone()
    return found.localize(local)


def batched(local: LocalOp) -> list[Value] | None:
    """What the op leaves where operands have one more dim in front; None if its rule has no form for that."""
    found = rule_of(local.spec)
    return found.batched(local) if found is not None and found.batched is not None else None


def traits_of(spec: OpSpec) -> Traits:
    """What an op is, as its rule states it; `UNKNOWN_FLOP` if it has no rule."""
    found = RULES.get(spec.kind) if spec.kind != "custom_call" else rule_of(spec)
    return UNKNOWN_FLOP if found is None else found.traits


def is_regathered(spec: OpSpec) -> bool:
    """True for an op through which a stored parameter still counts as stored, so that each use gathers it anew.

    A view that changes nothing is gathered once for all that read it.
    """
    return traits_of(spec).cheap_to_regather and not changes_nothing(spec)


def changes_nothing(spec: OpSpec) -> bool:
    """True for a view of all that it reads, as it is: a reshape to the same shape."""
    found = rule_of(spec)
    is_view = found is not None and isinstance(found.traits, View) and not found.structural
    return is_view and spec.operands == spec.results


def traits_named(kind: str, target: str = "") -> Traits:
    """As `traits_of`, for an op that is not yet read: its kind, and of a custom call its target."""
    found = CUSTOM_CALLS.get(target) if kind == "custom_call" else RULES.get(kind)
    return UNKNOWN_FLOP if found is None else found.traits


def passages_of(spec: OpSpec) -> tuple[Passage, ...]:
    """The ways in which a reduction pending on operands passes through an op.

    Raises `RegistryError` if the rule's passages do not fit the op.
    """
    found = rule_of(spec)
    if found is None or found.traits.passes is None:
        return ()
    passages = tuple(found.traits.passes(spec))
    for passage in passages:
        if len(passage.parts) != len(spec.operands) or passage.code not in REDUCTION_NAMES:
            raise RegistryError(
                f'the rule of "{found.kind}" passes {passage}',
                by=f"{found.family}, for {describe(spec)}",
                why=f"the op has {len(spec.operands)} operands, and reductions are {sorted(REDUCTION_NAMES)}",
                hint="one entry of `parts` per operand; code SUM, MAX, MIN, MUL, AND or OR",
            )
    return passages


def has_effect(spec: OpSpec) -> bool:
    """True if the op does more than compute its results: a host callback, a draw from a hidden state, or a custom call
    that declares it."""
    found = rule_of(spec)
    return bool(spec.attributes.get("has_side_effect", False)) or (found is not None and found.effect)


def _check(found: Rule, spec: OpSpec, mappings: tuple[TileMapping, ...]) -> None:
    seen: set[tuple[int, int]] = set()
    for mapping in mappings:
        why = _misfit(mapping, spec, seen)
        if why:
            raise RegistryError(
                f'the rule of "{found.kind}" returns {mapping}',
                by=f"{found.family}, for {describe(spec)}",
                why=why,
                hint=f"dims, WHOLE = {WHOLE}, or {closest('SUM', [n.upper() for n in REDUCTION_NAMES.values()])}",
            )


def _misfit(mapping: TileMapping, spec: OpSpec, seen: set[tuple[int, int]]) -> str:
    if len(mapping.operands) != len(spec.operands) or len(mapping.results) != len(spec.results):
        return f"the op has {len(spec.operands)} operands and {len(spec.results)} results"
    if mapping.reads and (len(mapping.reads) != len(spec.operands) or not mapping.drawn_by):
        return f"`reads` has an entry per operand, {len(spec.operands)}, and a mapping that has it is drawn"
    for position, (dim, type_) in enumerate(zip(mapping.operands, spec.operands, strict=True)):
        if dim == WHOLE:
            continue
        if not 0 <= dim < len(type_.shape) or type_.shape[dim] % mapping.extent:
            return f"operand {position} is {type_}: dim {dim} must exist and be a multiple of {mapping.extent}"
        if (position, dim) in seen and not (mapping.after or mapping.is_only_drawn):
            return f"dim {dim} of operand {position} is sliced by another mapping already"
        seen.add((position, dim))
    for position, (action, type_) in enumerate(zip(mapping.results, spec.results, strict=True)):
        if action in (AND, OR) and type_.dtype != "i1":
            return f"result {position} is {type_}: no collective combines numbers by {REDUCTION_NAMES[action]}"
        if action in REDUCTION_NAMES or action == ANY:
            continue
        if not 0 <= action < len(type_.shape) or type_.shape[action] % mapping.extent:
            return f"result {position} is {type_}: dim {action} must exist and be a multiple of {mapping.extent}"
        if (-1 - position, action) in seen and not (mapping.after or mapping.is_only_drawn):
            return f"dim {action} of result {position} is tiled by another mapping already"
        seen.add((-1 - position, action))
    return ""


def named(spec: OpSpec) -> str:
    """Its kind; a custom call with its target, `custom_call @name`, and a kernel by its own, `kernel flash`."""
    kernel = config_of(spec)
    if kernel is not None:
        return f"kernel {kernel['name']}"
    return f"custom_call @{target_of(spec)}" if spec.kind == "custom_call" else spec.kind


def describe(spec: OpSpec) -> str:
    """An op as one line: `dot_general (f32[8,16], f32[16,4]) -> (f32[8,4])`."""
    types = [", ".join(map(str, group)) for group in (spec.operands, spec.results)]
    return f"{named(spec)} ({types[0]}) -> ({types[1]})"
