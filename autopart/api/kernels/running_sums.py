"""What steps of a Pallas call pass on to the next ones, and whether it is a sum to which each of them adds.

    @pl.when(k == 0): acc[...] = 0       acc begins anew at the first step of k; along other dims nothing is passed on
    acc[...] += a[...] @ b[...]          it is a sum over k ...
    @pl.when(k == last): o[...] = acc    ... and o is linear in it: of slices along k, o has parts that are added up
    m[...] = jnp.maximum(m[...], s)      m is passed on, too, and is no sum: k stays whole

What a body reads before it writes there is passed on along the grid dims at whose first step it begins anew, and along
those inside of them; along all dims that are not said to be parallel, if it never does. A table of prefetched numbers
that says where it begins anew is believed to know, as that of splash attention over the blocks of its mask does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jax.extend.core import Literal, jaxprs_in_params

from autopart.core.importer.jaxprs import constants_and_carried

_LINEAR = frozenset({
    "convert_element_type", "reshape", "transpose", "squeeze", "broadcast_in_dim", "copy", "neg", "mul", "div", "slice",
    "reduce_sum", "dot_general", "add", "sub",
})  # fmt: skip
"""Primitives that are linear in an operand, as long as the others are no sums; `add` and `sub` in both."""

_KEEPS = frozenset({"convert_element_type", "broadcast_in_dim", "reshape", "squeeze", "copy"})
"""Those that leave each element as it is."""


class _Value(NamedTuple):
    """What is known of a value.

    kind  "plain", "zero"; "index", "remainder" of it, "count", "end" of the steps of a grid dim; whether it is the
          "first", a "later" or the "last" step; "old": what a reference holds; "added": that and something plain;
          "linear" in that; "mixed"
    dims  of the grid, for what is known of steps
    refs  the references whose old contents are in it
    key   equal for plain values that are equal, and for equal places of references
    told  whether it is made of prefetched numbers
    """

    kind: str
    dims: frozenset[int] = frozenset()
    refs: frozenset[int] = frozenset()
    key: Any = None
    told: bool = False


class _When(NamedTuple):
    """The steps that run a branch: "first", "later", "last", "some", or those that prefetched numbers have "told"; and
    whether it is all of those."""

    kind: str
    dims: frozenset[int] = frozenset()
    sure: bool = False


@dataclass
class RunningSums:
    """What a body does with its references, which are numbered as they come; `follow` fills it.

    axes     which grid dim `program_id` asks for, by axis
    grid     steps of each dim
    asked    dims that the body asks for otherwise than whether a step is the first or the last one
    carried  references that are read before they are written
    begins   of which dims all are at their first step when such a reference begins anew
    periodic dims of which only a remainder says that a step is the first one
    ends     dims whose last step is written in the program as a number, by the equation (its id) that compares with it
    """

    axes: Sequence[int]
    grid: Sequence[Any]
    asked: set[int] = field(default_factory=set[int])
    carried: set[int] = field(default_factory=set[int])
    begins: dict[int, frozenset[int]] = field(default_factory=dict[int, frozenset[int]])
    periodic: set[int] = field(default_factory=set[int])
    ends: dict[int, int] = field(default_factory=dict[int, int])
    _held: dict[int, _Value] = field(default_factory=dict[int, _Value])
    _no_sums: set[int] = field(default_factory=set[int])
    _linear_in: dict[int, frozenset[int]] = field(default_factory=dict[int, frozenset[int]])
    _assigned: dict[int, Any] = field(default_factory=dict[int, Any])

    def follow(self, jaxpr: Any, operands: int, prefetched: int) -> RunningSums:
        """Follows a body whose first references are operands, and the first of those numbers that are prefetched."""
        self._held = {
            n: _Value("plain", key=n, told=n < prefetched) if n < operands else _Value("old", refs=frozenset({n}))
            for n in range(len(jaxpr.invars))
        }
        self._walk(jaxpr, list(range(len(jaxpr.invars))), None)
        self._no_sums |= self._assigned.keys()
        return self

    def passes_on(self, grid_dim: int, scratch: range, parallel: Sequence[int]) -> bool:
        """Whether a step may read in scratch what a step before it along a dim has left there."""
        for ref in self.carried & set(scratch):
            outermost = min(self.begins.get(ref, {-1}))
            inside = grid_dim > outermost or (grid_dim == outermost and grid_dim not in self.periodic)
            if inside and grid_dim not in parallel:
                return True
        return False

    def is_sum(self, grid_dim: int, results: Mapping[int, Sequence[int]], scratch: range) -> bool:
        """Whether all that steps along a dim pass on are sums.

        results: the references of results that are read by anybody, and on which grid dims their blocks depend.
        """

        def is_one(ref: int, depends: Sequence[int] = ()) -> bool:
            over = self.begins.get(ref, frozenset())
            if grid_dim not in over or ref in self._no_sums:
                return False
            inside = range(min(over), len(self.grid))
            return all(d in over or d in depends or self.grid[d] == 1 for d in inside)

        for ref, depends in results.items():
            made_of = self._linear_in.get(ref)
            if grid_dim in depends:
                if ref in self.carried or made_of or ref in self._no_sums:
                    return False
            elif made_of is None:
                if not is_one(ref, depends):
                    return False
            elif ref in self._no_sums or not all(is_one(r, results.get(r, ())) for r in made_of):
                return False
        return grid_dim not in self.asked | self.periodic and all(is_one(ref) for ref in self.carried & set(scratch))

    # ---- equation by equation; an entry is a value, or the number of a reference

    def _walk(self, jaxpr: Any, inputs: Sequence[_Value | int], when: _When | None) -> list[_Value | int]:
        known: dict[Any, _Value | int] = dict(zip(jaxpr.invars, inputs, strict=True))
        for n, constant in enumerate(jaxpr.constvars):
            known[constant] = _Value("plain", key=("constant", id(jaxpr), n))

        def of(variable: Any) -> _Value | int:
            if not isinstance(variable, Literal):
                return known[variable]
            is_zero = np.ndim(variable.val) == 0 and variable.val == 0
            return _Value("zero" if is_zero else "plain", key=str(variable.val))

        for equation in jaxpr.eqns:
            made = self._equation(equation, [of(v) for v in equation.invars], when)
            known.update(zip(equation.outvars, made, strict=True))
        return [of(v) for v in jaxpr.outvars]

    def _equation(self, equation: Any, given: list[_Value | int], when: _When | None) -> list[_Value | int]:
        name, params, count = equation.primitive.name, equation.params, len(equation.outvars)
        inner = [getattr(j, "jaxpr", j) for j in jaxprs_in_params(params)]
        if name == "get" and isinstance(given[0], int):
            return [self._read(given[0], self._place(params, given[1:]))]
        if name in ("swap", "addupdate") and isinstance(given[0], int):
            return self._write(name, given[0], given[1], self._place(params, given[2:]), when)[:count]
        if name == "cond":
            return self._branches(given, inner, when, count)
        if name in ("scan", "while") and inner:
            return self._loop(equation, given, inner, when)
        if len(inner) == 1 and len(inner[0].invars) == len(given) and len(inner[0].outvars) == count:
            return self._walk(inner[0], given, when)
        for ref in (entry for entry in given if isinstance(entry, int)):  # such as a copy, which fills it
            self._held[ref] = _Value("plain", key=object())
            self._no_sums.add(ref)
        values = [entry for entry in given if not isinstance(entry, int)]
        if inner or len(values) < len(given):
            self._ask(values)
            return [_Value("plain", key=object()) for _ in range(count)]
        found = self._of_steps(equation, values) or self._of_sums(name, values, params)
        if found is None:
            self._ask(values)
            key = hash((name, str(params), *(v.key for v in values)))
            found = _Value("plain", key=key, told=any(v.told for v in values))
        return [found._replace(key=(found.key, n)) if count > 1 else found for n in range(count)]

    def _ask(self, values: Sequence[_Value | int]) -> None:
        for value in values:
            if not isinstance(value, int):
                self.asked |= value.dims

    def _of_steps(self, equation: Any, values: Sequence[_Value]) -> _Value | None:
        """What is known of grid steps, or of whether a step is the first or last one."""
        name, params, kinds = equation.primitive.name, equation.params, [v.kind for v in values]
        dims = frozenset[int]().union(*(v.dims for v in values))
        if name in ("program_id", "num_programs"):
            return _Value("index" if name == "program_id" else "count", frozenset({self.axes[params["axis"]]}))
        if name == "sub" and kinds[0] == "count" and values[1].key == "1":
            return _Value("end", dims)
        if name == "convert_element_type" and values[0].dims:
            return values[0]
        if name == "rem" and kinds[0] == "index" and not values[1].dims:
            return _Value("remainder", dims)
        if name == "select_n" and "remainder" in kinds[1:] and not any(v.refs for v in values):  # of negative numbers
            return _Value("remainder", dims)
        if name == "eq" and kinds == ["remainder", "zero"]:
            self.periodic |= dims
            return _Value("first", dims)
        if len(kinds) == 2 and kinds[0] == "index":
            (grid_dim,) = values[0].dims
            if kinds[1] == "zero" and name in ("eq", "ne", "gt"):
                return _Value("first" if name == "eq" else "later", dims)
            if name == "eq" and kinds[1] == "end" and values[0].dims == values[1].dims:
                return _Value("last", dims)
            if name == "eq" and values[1].key == str(self.grid[grid_dim] - 1):
                self.ends[id(equation)] = grid_dim
                return _Value("last", dims)
        if name == "and" and kinds in (["first"] * 2, ["last"] * 2):
            return _Value(kinds[0], dims)
        if name == "not" and (kinds == ["first"] or (kinds == ["later"] and len(dims) == 1)):
            return _Value("later" if kinds == ["first"] else "first", dims)
        if name == "select_n" and kinds[0] in ("first", "later") and len(kinds) == 3:
            here, there = (values[2], values[1]) if kinds[0] == "first" else (values[1], values[2])
            if there.kind == "old" and here.kind in ("zero", "plain"):
                self._begin(there.refs, dims, here.kind == "zero")
                return there
        return None

    def _of_sums(self, name: str, values: Sequence[_Value], params: Mapping[str, Any]) -> _Value | None:
        """What is made of what references hold; None where nothing is."""
        refs = frozenset[int]().union(*(v.refs for v in values))
        if not refs:
            is_zero = name in _KEEPS and values and values[0].kind == "zero"
            return _Value("zero", key="0") if is_zero else None
        self._ask([v for v in values if not v.refs])
        sums, plain = [v for v in values if v.refs], [v for v in values if not v.refs]
        kinds = {v.kind for v in sums}
        if name in _KEEPS and kinds <= {"old", "added"}:
            return sums[0]
        if name == "add" and len(sums) == len(plain) == 1 and kinds <= {"old", "added"}:
            before = sums[0].key if sums[0].kind == "added" else (sums[0].key, None)
            return _Value("added", refs=refs, key=(before[0], (before[1], plain[0].key)))
        is_linear = name in _LINEAR and kinds <= {"old", "linear"}
        alone = not plain if name in ("add", "sub") else len(sums) == 1 and (name != "div" or sums[0] is values[0])
        return _Value("linear" if is_linear and alone else "mixed", refs=refs)

    # ---- references

    def _place(self, params: Mapping[str, Any], indices: Sequence[_Value | int]) -> Any:
        self._ask(indices)
        return (str(params["tree"]), *(i.key if isinstance(i, _Value) else i for i in indices))

    def _read(self, ref: int, place: Any) -> _Value:
        held = self._held[ref]
        if held.kind == "old":
            self.carried.add(ref)
        return held._replace(key=place if held.kind == "old" else hash((held.key, place)))

    def _write(self, name: str, ref: int, value: _Value | int, place: Any, when: _When | None) -> list[_Value | int]:
        assert isinstance(value, _Value)
        before = self._held[ref]
        self._ask([value])
        if name == "addupdate":
            value = self._of_sums("add", [self._read(ref, place), value], {}) or _Value("plain", key=object())
        if value.kind in ("old", "added") and value.refs == frozenset({ref}):
            self._add(ref, value, place, when)
        elif not value.refs and when is not None and when.kind == "first":
            self._begin(frozenset({ref}), when.dims, value.kind == "zero" and when.sure, value.key)
        elif not value.refs and when is not None and when.kind == "told":
            self._begin(frozenset({ref}), frozenset({len(self.grid)}), at_zero=False)
        elif when is None or (when.kind == "last" and value.refs):
            if value.kind in ("old", "linear") and ref not in value.refs:
                self._linear_in[ref] = self._linear_in.get(ref, frozenset()) | value.refs
            elif value.refs:
                self._no_sums.add(ref)
            if when is None and ref not in value.refs:
                self._held[ref] = _Value(
                    "linear" if value.kind == "old" else value.kind, refs=value.refs, key=value.key
                )
        else:
            self._no_sums.add(ref)
        return [before]

    def _add(self, ref: int, value: _Value, place: Any, when: _When | None) -> None:
        """Where a later step adds what the first one writes, every step adds it."""
        if value.kind == "added" and value.key[0] != place:
            self._no_sums.add(ref)
        elif when is not None and when.kind == "later" and self._assigned.get(ref, ()) == value.key[1][1]:
            if self.begins[ref] == when.dims and value.key[1][0] is None:
                del self._assigned[ref]
        elif when is not None and when.kind not in ("some", "told"):
            self._no_sums.add(ref)

    def _begin(self, refs: frozenset[int], dims: frozenset[int], at_zero: bool, key: Any = None) -> None:
        for ref in refs:
            self.begins[ref] = dims
            if not at_zero:
                self._assigned[ref] = key

    # ---- control flow

    def _branches(self, given: list[_Value | int], inner: Sequence[Any], when: _When | None, count: int) -> list[Any]:
        which, passed = given[0], given[1:]
        assert isinstance(which, _Value)
        steps = {"first": ("later", "first"), "later": ("first", "later"), "last": ("some", "last")}.get(which.kind)
        if steps is None or len(inner) != 2:
            self._ask([which])
            steps = ("told" if which.told else "some",) * len(inner)
        left, held, order = dict[int, list[Any]](), dict[int, dict[int, _Value]](), range(len(inner))
        before = dict(self._held)
        for n in sorted(order, key=lambda n: steps[n] != "first"):  # what begins anew, first
            self._held = dict(before)
            kind = _When(steps[n], which.dims, when is None)
            left[n] = self._walk(inner[n], passed, _When("some") if steps[n] == "some" else kind)
            held[n] = self._held
        self._held = {ref: _either([held[n][ref] for n in order]) for ref in before}
        return [_either([left[n][k] for n in order]) for k in range(count)]

    def _loop(
        self, equation: Any, given: list[_Value | int], inner: Sequence[Any], when: _When | None
    ) -> list[_Value | int]:
        params, passed = equation.params, given
        if equation.primitive.name == "scan":
            body, (constants, carried) = inner[0], constants_and_carried(equation)
        else:
            body, constants = params["body_jaxpr"].jaxpr, params["body_nconsts"]
            passed = given[params["cond_nconsts"] :]
            carried = len(passed) - constants
            self._walk(params["cond_jaxpr"].jaxpr, [*given[: params["cond_nconsts"]], *passed[constants:]], when)
        start = [
            entry if isinstance(entry, int) or entry.refs else _Value("plain", entry.dims, key=object())
            for entry in passed
        ]
        self._ask([entry for entry in passed[constants:] if not isinstance(entry, int) and not entry.refs])
        left = self._walk(body, start, when)
        found: list[_Value | int] = []
        for n, entry in enumerate(left):
            before = start[constants + n] if n < carried else _Value("plain")
            grows = isinstance(entry, int) or entry.refs == getattr(before, "refs", None)
            found.append(entry if grows else _Value("mixed", refs=getattr(entry, "refs", frozenset())))
        return found


def _either(values: Sequence[Any]) -> Any:
    """What is known of a value that is one of these."""
    if all(v == values[0] for v in values) or any(isinstance(v, int) for v in values):
        return values[0]
    refs = frozenset[int]().union(*(v.refs for v in values))
    if not refs:
        return _Value("plain", key=object())
    old = next((v for v in values if v.kind == "old"), None)
    if old is not None and all(v.refs == old.refs and v.kind in ("old", "added") for v in values):
        return old
    return _Value("mixed", refs=refs)


def with_ends(jaxpr: Any, ends: Mapping[int, int]) -> Any:
    """A body in which last steps have other numbers: by the equation (its id) that compares with it."""
    equations = [
        e.replace(invars=[e.invars[0], Literal(np.int32(ends[id(e)]), e.invars[1].aval)]) if id(e) in ends else e
        for e in jaxpr.eqns
    ]
    return jaxpr.replace(eqns=equations)
