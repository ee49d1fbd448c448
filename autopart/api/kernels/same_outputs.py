"""Do two modules compute the same of their arguments, op by op? What tells a true mapping of a twin from a false one.

    main(x[2,8])  %0 = reduce max %x; %1 = subtract %x, %0      the twin as propagation slices it
    main(x[2,8])  %0 = reduce max %x; %1 = subtract %x, %0      the twin, traced for a slice: alike

Each value has a digest of the op that makes it and of the digests of what that reads; outputs are alike where theirs
are equal. An op that changes nothing counts as what it reads, and a reduction between devices counts at outputs only.
A mean over a sliced dim differs by its constant, a mask by the device's position, a softmax by a collective.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from autopart.core.doors.jax_internals import ir, op_text
from autopart.core.op_spec_import import PLACEMENT_ATTRIBUTES

_KEEPS = frozenset({"stablehlo.reshape", "stablehlo.broadcast_in_dim", "stablehlo.convert", "stablehlo.transpose"})


def outputs_of(module: ir.Module) -> list[str]:
    """The digest of each output of `main`; of one that is reduced between devices, of its parts."""
    main = next(op.operation for op in module.body.operations if _symbol(op.operation) == "main")
    digests = _Digests({_symbol(op.operation): op.operation for op in module.body.operations})
    block = main.regions[0].blocks[0]
    return digests.block(block, [f"argument {n}" for n in range(len(block.arguments))], before_reduction=True)


class _Digests:
    def __init__(self, functions: dict[str, ir.Operation]):
        self._functions, self._known = functions, dict[ir.Value, str]()

    def block(self, block: ir.Block, arguments: Sequence[str], before_reduction: bool = False) -> list[str]:
        """Digests of what a block returns."""
        self._known.update(zip(block.arguments, arguments, strict=True))
        for op in block.operations:
            op = op.operation
            read = [self._known[v] for v in op.operands]
            if op.name.endswith("return"):
                values = [_parts(v) if before_reduction else v for v in op.operands]
                return [self._known[v] for v in values]
            for number, result in enumerate(op.results):
                self._known[result] = self._of(op, number, read)
        return []

    def _of(self, op: ir.Operation, number: int, read: list[str]) -> str:
        if op.name in _KEEPS and op.results[0].type == op.operands[0].type and _in_order(op):
            return read[0]
        if op.name == "stablehlo.constant":
            return _digest(op_text(op))
        if op.name == "func.call":
            function = self._functions[ir.FlatSymbolRefAttr(op.attributes["callee"]).value]
            return self.block(function.regions[0].blocks[0], read)[number]
        attributes = sorted(f"{n}={a}" for n, a in op.attributes.items() if n not in PLACEMENT_ATTRIBUTES)
        inside = [
            self.block(block, [f"{op.name} {n} {a.type}" for n, a in enumerate(block.arguments)])
            for region in op.regions
            for block in region.blocks
        ]
        types = [str(result.type) for result in op.results]
        return _digest(f"{op.name} {number} {attributes} {types} {read} {inside}")


def _in_order(op: ir.Operation) -> bool:
    """True for an op whose dims stay where they are."""
    for name in ("permutation", "broadcast_dimensions"):
        if name in op.attributes:
            dims = list(ir.DenseI64ArrayAttr(op.attributes[name]))
            return dims == sorted(dims)
    return True


def _parts(value: ir.Value) -> ir.Value:
    """What is reduced between devices, if that leaves the value."""
    if isinstance(value.owner, ir.Block) or value.owner.operation.name != "stablehlo.all_reduce":
        return value
    return value.owner.operation.operands[0]


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _symbol(op: ir.Operation) -> str:
    return ir.StringAttr(op.attributes["sym_name"]).value if "sym_name" in op.attributes else ""
