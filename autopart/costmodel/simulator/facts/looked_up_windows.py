"""What is looked up by index lies in memory one window after the other: layout tiles are filled within each.

    %h = gather %table, %senders    f32[131072,2,16] of f32[16384,2,16]    a matrix of 2 x 16 takes 2 x 128: 134 MB
    %m = multiply %h, %weights      lies as %h; a tile takes 14 cycles
    %s = reduce %m over 16          a tile takes 14 cycles, and one of 8 rows 20

Any other array of this shape would have 131072 along the lanes and take 17 MB. Found with libtpu 0.0.51 on v5e and v3:
64 small programs with windows of 2 to 256 elements, in one dim and in two, that leave what was looked up, scale it, sum
its rows, or add it to a table. Windows of one dim, f32[131072,16], lie along the lanes as well, 8 to a tile.
Windows that fill the lanes lie as any array does, unless they are divided: f32[320000,128] in parts of 32 features
takes as much memory as if it were whole.
What is transposed at once, such as a bias looked up by relative places, is written anew, and lies as any array does.
"""

from __future__ import annotations

import numpy as np

from autopart.core.op import OpSpec
from autopart.core.ops.rule import traits_of
from autopart.core.ops.traits import Reduction, Slicing
from autopart.core.program import Program
from autopart.costmodel.simulator.facts.followed_layouts import follow_layouts
from autopart.costmodel.simulator.facts.op_classes import ELEMENTWISE
from autopart.costmodel.simulator.sizes import ALONE_BIT, SHORT_BIT


def outside_windows(
    program: Program, op_class: np.ndarray, spreads: np.ndarray, turns: np.ndarray, lanes: int
) -> np.ndarray:
    """int32[values]: a bit for each dim along which windows were looked up.

    `op_class` is that of each op; `spreads` those that put each number along a row, `turns` those that move another
    dim into the minor place, and `lanes` how many lie side by side: rows that fill them lie as in any array.
    """
    looked_up = np.array([_indices(spec, lanes) for spec in program.specs], np.int32)[program.op_spec]
    marks = np.zeros(program.value_count, np.int32)
    marks[program.result_ptr[:-1][looked_up > 0]] = looked_up[looked_up > 0]
    marks[_only_turned(program, turns)] = 0
    follow_layouts(program, op_class, marks, of_dims=True)
    _mark_spread(program, op_class, spreads, marks)
    return marks


def _only_turned(program: Program, turns: np.ndarray) -> np.ndarray:
    """bool[values]: all that reads it moves another dim into the minor place, which writes it anew."""
    turned, kept = np.zeros(program.value_count, np.bool_), np.zeros(program.value_count, np.bool_)
    turned[program.operands[turns[program.use_op]]] = True
    kept[program.operands[~turns[program.use_op]]] = True
    kept[program.outputs] = True
    return turned & ~kept


def _mark_spread(program: Program, op_class: np.ndarray, spreads: np.ndarray, marks: np.ndarray) -> None:
    """Marks what is spread over marked values, in the kernels that make these."""
    made = program.result_ptr[program.use_op]
    one = (op_class[program.use_op] == ELEMENTWISE) & (program.result_ptr[program.use_op + 1] == made + 1)
    uses = np.flatnonzero(one & spreads[program.value_op[program.operands]])
    value, made = program.operands[uses], made[uses]
    alike = (program.value_shape[value] == program.value_shape[made]).all(axis=1) & (marks[value] == 0)
    marks[value[alike]] = marks[made[alike]]


def _indices(spec: OpSpec, lanes: int) -> int:
    """A bit for each dim of a gather's result that stands for its indices, and `ALONE_BIT`; `SHORT_BIT` where windows
    are rows that fill the lanes, unless they are divided."""
    traits = traits_of(spec)
    if not isinstance(traits, Slicing) or not traits.indexed:
        return 0
    shape, given = spec.results[0].shape, spec.attributes["dimension_numbers"]["offset_dims"]
    window = [d for d in given if shape[d] > 1]
    if not window:
        return 0
    short = SHORT_BIT if len(window) == 1 and shape[window[0]] >= lanes else 0
    return ALONE_BIT | short | sum(1 << d for d in range(len(shape)) if d not in given)


def sums_windows(program: Program, looked_up: np.ndarray) -> np.ndarray:
    """bool[ops]: sums within each window of what was looked up. `looked_up` is of `outside_windows`."""
    summed = np.array([_summed(spec) for spec in program.specs], np.int32)[program.op_spec]
    found = np.zeros(program.op_count, np.bool_)
    ops = np.flatnonzero(summed)
    indices = looked_up[program.operands[program.operand_ptr[ops]]]
    found[ops] = (indices > 0) & (summed[ops] & indices == 0)
    return found


def _summed(spec: OpSpec) -> int:
    """A bit for each dim that a reduction sums over."""
    if not isinstance(traits_of(spec), Reduction) or "dimensions" not in spec.attributes:
        return 0
    return sum(1 << d for d in spec.attributes["dimensions"])
