"""In which products' kernels a light op may run, in some state.

    %h = dot %x %w                  product
    %g = add %h %b                  in the kernel of %h, unless something is moved between them
    %m = reduce_sum %g              there too
    %d = subtract %g %m             not there: that kernel has to end before %m is known
    %k = dot %d %v                  %d may be computed inside it, but no op runs in a kernel that has to wait for it

Of an op that may run with one product alone, from whose result it is made by elementwise ops, that product is its
*only* one: where something is moved on the way, a kernel without a product runs the op.

An op runs with a product if all that it reads is there before the product's kernel, or made in it: if it needs the
product, then by way of elementwise ops and of the largest of a softmax's rows alone (`softmax_rows.py`), and if the
product does not need it. What reads arrays together is of one region (`fusion_regions.py`), so that a region's ops run
with products that something in the region reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from autopart.costmodel.simulator.arrays import ProgramArrays
from autopart.costmodel.simulator.facts.op_classes import CONV, ELEMENTWISE, MATMUL


class Hosts(NamedTuple):
    """The products in whose kernels each light station may run, by op; and those that are the only one of an op."""

    of: dict[int, frozenset[int]]
    only: dict[int, int]


def product_hosts(
    arrays: ProgramArrays, of_op: np.ndarray, stations: np.ndarray, read_by: Callable[[int], set[int]]
) -> Hosts:
    """What is known of the light ops among some stations.

    of_op      int64[ops]: the region of a light op, else -1
    stations   ops that are never computed inside others
    read_by    the regions that read results of a product
    """
    scope = arrays.ops["op_scope"].tolist()
    products = np.flatnonzero(np.isin(arrays.ops["op_class"], (MATMUL, CONV))).tolist()
    makers: dict[int, int] = {}
    for number, product in enumerate(products):
        for region in read_by(product):
            makers[region] = makers.get(region, 0) | 1 << number
    (direct, between), needing = _needed(arrays, products), _needing(arrays, products)
    hosts = Hosts({}, {})
    for op in stations[of_op[stations] >= 0].tolist():
        bits = makers.get(int(of_op[op]), 0) & ~between[op] & ~needing[op]
        found = [n for n in _numbers(bits) if scope[products[n]] == scope[op]]
        hosts.of[op] = frozenset(products[n] for n in found)
        if len(found) == 1 and direct[op] >> found[0] & 1:
            hosts.only[op] = products[found[0]]
    return hosts


def _numbers(bits: int) -> list[int]:
    found: list[int] = []
    while bits:
        found.append((bits & -bits).bit_length() - 1)
        bits &= bits - 1
    return found


def _needed(arrays: ProgramArrays, products: list[int]) -> tuple[list[int], list[int]]:
    """Per op, as bits, the products that it is made from by elementwise ops, and those that it needs by way of another
    product's result, or of one that no kernel takes while it is made."""
    number = {product: 1 << n for n, product in enumerate(products)}
    ops, makers = arrays.ops, _makers(arrays)
    takes = (ops["is_view"] | (ops["op_class"] == ELEMENTWISE) | ops["is_largest"]).tolist()
    direct, between = [0] * len(makers), [0] * len(makers)
    for op, made_by in enumerate(makers):
        for maker in made_by:
            direct[op] |= direct[maker] if takes[maker] else number.get(maker, 0)
            between[op] |= between[maker] if takes[maker] else direct[maker] | between[maker]
    return direct, between


def _needing(arrays: ProgramArrays, products: list[int]) -> list[int]:
    """Per op, as bits, the products that need it."""
    number = {product: 1 << n for n, product in enumerate(products)}
    makers = _makers(arrays)
    needing = [0] * len(makers)
    for op in range(len(makers) - 1, -1, -1):
        for maker in makers[op]:
            needing[maker] |= needing[op] | number.get(op, 0)
    return needing


def _makers(arrays: ProgramArrays) -> list[list[int]]:
    """Per op, the ops before it that make its operands; a loop's next value is made after the loop's ops."""
    pointer = arrays.operand_ptr.tolist()
    maker = arrays.values["value_op"][arrays.uses["operands"]].tolist()
    return [[m for m in maker[pointer[op] : pointer[op + 1]] if m < op] for op in range(len(pointer) - 1)]
