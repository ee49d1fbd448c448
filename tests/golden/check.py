"""One helper that checks five things, so that no expected text can be updated into a lie.

check(chain, MESH, [BP, MP], ARGS, hlo=..., collectives={"all_reduce": 1})

verifies      the device-local program and the exported module
compares      PartIR:Core and PartIR:HLO with the texts given inline
runs          the partitioned program on simulated devices against the unpartitioned one: exactly where all numbers
              are whole
counts        collectives in the exported StableHLO, which are those of the metadata and those expected
parses again  the exported text, which says the same then
"""

from __future__ import annotations

import tempfile
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import autopart as ap
from autopart.core.doors.jax_internals import device_local_call, numpy_dtype, parse_module
from autopart.spmd.verify_local import verify

STABLEHLO_KINDS = {
    "stablehlo.all_gather": "all_gather",
    "stablehlo.all_reduce": "all_reduce",
    "stablehlo.reduce_scatter": "reduce_scatter",
    "stablehlo.all_to_all": "all_to_all",
    "stablehlo.collective_permute": "all_permute",
}
"""Collective ops of StableHLO, and what metadata calls them."""


def check(
    program: Callable[..., Any] | str,
    mesh: ap.Mesh,
    schedule: Sequence[Any],
    args: Sequence[Any],
    *,
    collectives: Mapping[str, int],
    core: str | None = None,
    hlo: str | None = None,
    trips: int = 1,
    donate: Sequence[int] = (),
) -> ap.Lowered:
    """The lowered program, once it has passed.

    program      a function, or the text of a StableHLO module
    args         arrays or their shapes (pytrees for a function); of a shape, an array of small whole numbers is made
    collectives  kind -> how often a step runs it; kinds that are left out: never
    core, hlo    the whole text expected in each form, indented as the caller likes
    trips        how often each loop of the program runs
    """
    arrays = jax.tree.map(_whole_numbers, tuple(args))
    step = ap.jit(_loaded(program) if isinstance(program, str) else program, mesh, schedule, donate_argnums=donate)
    lowered = step.lower(*arrays)
    verify(lowered.program)
    lowered.exported.operation.verify()
    for form, expected in (("core", core), ("hlo", hlo)):
        if expected is not None:
            assert lowered.as_text(form) == textwrap.dedent(expected).strip()
    expected_counts = {kind: collectives.get(kind, 0) for kind in STABLEHLO_KINDS.values()}
    assert collectives.keys() <= expected_counts.keys()
    assert collectives_in(lowered.exported, trips) == expected_counts
    assert dict(lowered.metadata.tactics[-1].collectives) == expected_counts
    _check_parses_again(lowered, expected_counts, trips)
    _check_same_numbers(_unpartitioned(program)(*arrays), lowered.compile()(*jax.tree.map(np.copy, arrays)))
    return lowered


def collectives_in(module: Any, trips: int = 1) -> dict[str, int]:
    """How often a run of an MLIR module meets each kind of collective, if each loop runs `trips` times."""
    found: Counter[str] = Counter()

    def walk(operation: Any, times: int) -> None:
        if operation.name in STABLEHLO_KINDS:
            found[STABLEHLO_KINDS[operation.name]] += times
        inside = times * trips if operation.name == "stablehlo.while" else times
        for region in operation.regions:
            for block in region.blocks:
                for op in block.operations:
                    walk(op.operation, inside)

    walk(module.operation, 1)
    return {kind: found[kind] for kind in STABLEHLO_KINDS.values()}


def _check_parses_again(lowered: ap.Lowered, counts: Mapping[str, int], trips: int) -> None:
    text = lowered.as_text("stablehlo")
    again = parse_module(text)
    again.operation.verify()
    assert collectives_in(again, trips) == counts
    assert str(again.operation.get_asm(large_elements_limit=None)) == text


def _check_same_numbers(whole: Any, parts: Any) -> None:
    """Equal where the whole program's numbers are whole (each sum of them is exact), close elsewhere."""
    expected, found = jax.tree.leaves(whole), jax.tree.leaves(parts)
    assert len(expected) == len(found) > 0
    for a, b in zip(map(np.asarray, expected), map(np.asarray, found), strict=True):
        assert a.dtype == b.dtype
        if a.dtype.kind in "iub" or np.array_equal(a, np.round(a)):
            np.testing.assert_array_equal(b, a)
        else:
            np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)


def _unpartitioned(program: Callable[..., Any] | str) -> Callable[..., Any]:
    """The program as XLA runs it on one device."""
    if not isinstance(program, str):
        return jax.jit(program)
    module = parse_module(program)
    main = next(op for op in module.body.operations if str(op.attributes["sym_name"]) == '"main"')
    results = [(tuple(t.shape), numpy_dtype(str(t.element_type))) for t in main.type.results]
    return jax.jit(device_local_call(module, results))


def _loaded(text: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.mlir"
        path.write_text(text)
        return ap.load(path)


def _whole_numbers(like: Any) -> Any:
    """An array of -2 .. 2 for a shape; an array as it is."""
    if not isinstance(like, jax.ShapeDtypeStruct):
        return like
    lowest = 0 if np.dtype(like.dtype).kind in "ub" else -2
    return np.random.default_rng(like.shape).integers(lowest, 3, like.shape).astype(like.dtype)
