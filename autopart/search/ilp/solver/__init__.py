"""A solver of pairwise problems with a limit on usage over time, usable without the rest of autopart."""

from autopart.search.ilp.solver.problem import PairwiseError, PairwiseProblem
from autopart.search.ilp.solver.solution import Incumbent, Solution

__all__ = ["Incumbent", "PairwiseError", "PairwiseProblem", "Solution"]
