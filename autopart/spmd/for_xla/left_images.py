"""Few examples go on from convolutions to products as products have them in memory.

    %y = convolution %x, %w      f32[2,512,512]: 2 examples, 512 places, 512 features
    %c = custom_call @LayoutConstraint(%y)      tiles of places by features
    %r = add %c, %positions      and so on, for all layers

A convolution of few images leaves these along the rows of layout tiles, which they do not fill, and XLA:TPU leaves what
is computed of it, element by element, the same: it copies the residual stream of a transformer behind a convolution in
front of each product and behind it. So it does with gradients on their way to such a convolution. With libtpu 0.0.51 on
v3:4x4 steps of Whisper with 2 examples a device take 0.86 of the compute so, of a conformer with 4 0.92, of Swin with 2
and 4 0.89 and 0.95, of a SegFormer 0.95, on v5e:2x4 Whisper with 4 0.90; of four others 1.00 to 1.01.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Convolution, Elementwise, Matmul, View
from autopart.core.program import Program
from autopart.spmd.device_local import DeviceLocal
from autopart.spmd.for_xla.memory_orders import Order

FILLED = 8
"""So many images fill the rows of a layout tile. One image is cut, or lies as it comes."""


def left_images(local: DeviceLocal) -> dict[int, Order]:
    """The orders of what convolutions leave for products, and of what products leave for the gradient of a kernel."""
    found, search = dict[int, Order](), _Search(local.program)
    for op in search.convolutions:
        value = search.left_or_met(op)
        shape = local.local_type(value, int(local.native[value])).shape if value >= 0 else ()
        if shape and 1 < shape[0] < FILLED and search.goes_to_products(op, value):
            found[value] = tuple(range(len(shape)))
    return found


class _Search:
    """Of one program: the ops that values meet."""

    def __init__(self, program: Program):
        self._program, self._sizes = program, program.value_elements
        kinds = [_kind(traits_of(spec)) for spec in program.specs]
        self._kind = [kinds[spec] for spec in program.op_spec.tolist()] if Convolution in kinds else []
        self.convolutions = [op for op, kind in enumerate(self._kind) if kind is Convolution]
        self._of_kernel = {op for op in self.convolutions if self._is_of_kernel(op)}
        self._of_input = {op for op in self.convolutions if self._is_of_input(op)}

    def left_or_met(self, op: int) -> int:
        """What a convolution leaves, or what the gradient of its kernel reads beside its images; -1 for the gradient of
        its input, and where images do not come first and features last."""
        if op in self._of_input or not self._features_last(op):
            return -1
        return int(self._program.operands_of(op)[1] if op in self._of_kernel else self._program.results_of(op)[0])

    def goes_to_products(self, op: int, value: int) -> bool:
        """True if the value meets products, and no other convolution of its pass: forward from what is left, back from
        what is met."""
        program = self._program
        if op in self._of_kernel:
            met = self._met(value, lambda v: [int(program.value_op[v])], lambda o: program.operands_of(o).tolist())
            others = met & self._of_input
        else:
            met = self._met(value, program.readers_of, lambda o: list(program.results_of(o)))
            others = met.intersection(self.convolutions) - self._of_kernel - self._of_input
        return not others and any(self._kind[o] is Matmul for o in met)

    def _features_last(self, op: int) -> bool:
        """True where images come first and features last, in what a convolution leaves or the gradient of its kernel
        reads."""
        spec = self._program.spec(op)
        numbers, right, out = spec.attributes["dimension_numbers"], spec.operands[1], spec.results[0]
        if op in self._of_kernel:
            ends = numbers["kernel_input_feature_dimension"], numbers["kernel_output_feature_dimension"]
            return ends == (0, len(right.shape) - 1)
        return (numbers["output_batch_dimension"], numbers["output_feature_dimension"]) == (0, len(out.shape) - 1)

    def _is_of_kernel(self, op: int) -> bool:
        traits = traits_of(self._program.spec(op))
        return isinstance(traits, Convolution) and traits.of_kernel(self._program.spec(op))

    def _is_of_input(self, op: int) -> bool:
        """True for the gradient of a convolution's input: it reads the kernel reversed."""
        program = self._program
        made = traits_of(program.spec(int(program.value_op[program.operands_of(op)[1]])))
        return isinstance(made, Elementwise) and made.reverses

    def _met(self, value: int, ops: Callable[[int], Iterable[int]], values: Callable[[int], Iterable[int]]) -> set[int]:
        """The ops that a value comes to, or from, through those that keep its number of elements."""
        sizes = self._sizes
        waits, seen, met = [value], {value}, set[int]()
        while waits:
            for op in ops(waits.pop()):
                met.add(op)
                if self._kind[op] in (Elementwise, View):
                    found = [v for v in values(op) if v not in seen and sizes[v] == sizes[value]]
                    seen.update(found)
                    waits += found
        return met


def _kind(traits: object) -> type | None:
    return next((kind for kind in (Convolution, Matmul, Elementwise, View) if isinstance(traits, kind)), None)
