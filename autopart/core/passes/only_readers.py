"""Values that only ops of some kind read: what a pass asks of the whole program before it looks at single ops.

%s = slice %x      %p = pad %s, 0       only_read(program, pads)[%s]: True
%t = slice %x      %y = add %t, %t                              [%t]: False
"""

from __future__ import annotations

import numpy as np

from autopart.core.program import Program


def only_read(program: Program, by: np.ndarray) -> np.ndarray:
    """bool[values]: something reads the value, and the uses by which it is read are all True in `by`, bool[uses]."""
    others = np.bincount(program.operands[~by], minlength=program.value_count)
    return (np.diff(program.users[0]) > 0) & (others == 0)
