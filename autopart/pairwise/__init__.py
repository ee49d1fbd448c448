"""A solver of pairwise problems with a limit on usage over time, usable without the rest of autopart."""

from autopart.pairwise.anytime import INTERRUPTED, solve
from autopart.pairwise.contest_format import read_problem, write_problem
from autopart.pairwise.pairwise_error import PairwiseError
from autopart.pairwise.pairwise_problem import PairwiseProblem
from autopart.pairwise.solution import Incumbent, Solution

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
