"""What others reached on the instances of the ASPLOS 2025 contest, each with its source.

Costs: `iopddl_final_results.csv` of ti2-group/iopddl_experiments, the organisers' final results of all teams and of
XLA's own solver, where it has one; the winner is team 1, and `best` the least of all teams. Bounds: the largest
`dual_LB` per instance in `lower_bounds/results.db` of the same repository, and the optima that it proved with Gurobi.
"""

from __future__ import annotations

from typing import NamedTuple


class Published(NamedTuple):
    """Costs of the winner, of the best team and of XLA (None: no entry), and the largest lower bound."""

    winner: int
    best: int
    xla: int | None
    bound: float


PUBLISHED = {
    "A": Published(6_569_457_676, 6_548_641_531, 13_214_846_074, 6_513_812_172),
    "B": Published(532_843, 532_843, 990_205, 532_843),
    "C": Published(84_102_445_260, 84_102_445_260, 4_195_881_092_919, 82_509_087_987),
    "D": Published(313_613_524_736, 313_613_524_736, None, 298_253_500_099),
    "G": Published(217_039, 217_039, 1_264_777, 216_931),
    "K": Published(2_274_276_676, 2_274_276_676, None, 2_065_623_588),
    "L": Published(1_970_993_742, 1_970_993_742, None, 1_918_617_707),
    "M": Published(49_928_460_991, 49_928_460_991, None, 49_407_421_919),
    "N": Published(202_739_586_553, 202_739_586_553, None, 172_940_125_421),
    "P": Published(662_197_407_330, 662_197_407_330, 651_833_115_436, 616_246_285_726),
    "Q": Published(527_715_368_061, 526_776_842_042, 1_995_944_800_323, 505_549_458_726),
    "R": Published(371_899_551_572, 371_899_551_572, None, 304_520_000_000),
    "S": Published(1_534_613_444, 1_534_613_444, None, 1_511_240_135),
    "T": Published(682_895_254_913, 682_895_254_913, None, 585_686_829_498),
    "U": Published(2_569_342_178, 2_569_342_178, None, 2_018_900_000),
    "V": Published(2_213_404, 1_632_051, None, 1_617_084),
}
