"""A solver of pairwise problems with a limit on usage over time, usable without the rest of autopart."""

from autopart.search.ilp.solver.anytime import INTERRUPTED, solve
from autopart.search.ilp.solver.contest_format import read_problem, write_problem
from autopart.search.ilp.solver.pairwise_error import PairwiseError
from autopart.search.ilp.solver.pairwise_problem import PairwiseProblem
from autopart.search.ilp.solver.solution import Incumbent, Solution

__all__ = [
    "INTERRUPTED",
    "Incumbent",
    "PairwiseError",
    "PairwiseProblem",
    "Solution",
    "read_problem",
    "solve",
    "write_problem",
]
