"""The optimizer interface, and the registry of optimizers.

    @register_optimizer("coin")
    @dataclass(frozen=True)
    class Coin:
        flips: int = 10

        def search(self, problem: Problem) -> None:
            random = np.random.default_rng(problem.seed)
            for _ in range(self.flips):
                option = problem.start.options[random.integers(len(problem.start.options))]
                problem.run([Job((option.decision,))])

An optimizer is a frozen dataclass with one method. It asks for costs in waves; the problem keeps the best state, so the
method returns nothing, may stop at any time, and lets `BudgetSpent` pass through. Packages can also register one by the
entry point group "autopart.optimizers". `autopart.search.contract` tests what every optimizer promises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar, runtime_checkable

from autopart.base.arguments import STRING, having, maker
from autopart.base.errors import PartitionError
from autopart.base.registry import Registry
from autopart.search.problem import Problem


@runtime_checkable
class Optimizer(Protocol):
    """Anything that can search."""

    def search(self, problem: Problem) -> None:
        """Costs states through `problem.run` until content, or until that raises `BudgetSpent`.

        Its choices depend on `problem.seed` and on costs alone: not on time, workers or global state.
        """
        ...


@runtime_checkable
class FindsBound(Protocol):
    """An optimizer that can say without evaluations that no state scores less than a bound."""

    def bound_alone(self, problem: Problem) -> None:
        """Sets `problem.lower_bound`, or a note why there is none; called in the place of `search` where the budget in
        evaluations ended before it could begin."""
        ...


class OptimizerError(PartitionError):
    """An optimizer raised, or what was given is not an optimizer. `best` is the best state found before, if any."""

    best: Any = None


OPTIMIZER = STRING | having("an object with search(problem), such as ap.MCTS()", "search")
"""What an optimizer may be given as."""

OPTIMIZERS: Registry[Callable[[], Optimizer]] = Registry(
    "optimizer", accepts=maker("search(problem)", "search"), entry_points="autopart.optimizers", error=OptimizerError
)
"""What makes an optimizer with default settings, by name."""

T = TypeVar("T", bound=Callable[[], Any])


def register_optimizer(name: str) -> Callable[[T], T]:
    """Class decorator: `optimizer="name"` then means an instance with default fields. A name can be taken once."""
    return OPTIMIZERS.register(name)


def optimizers() -> dict[str, Callable[[], Optimizer]]:
    """Every registered optimizer by name, entry points included."""
    return dict(OPTIMIZERS)


def optimizer_of(optimizer: str | Optimizer) -> Optimizer:
    """The optimizer a user means; raises `UnknownNameError` listing the known ones, `OptimizerError` otherwise."""
    if isinstance(optimizer, str):
        return OPTIMIZERS.named(optimizer)()
    given: Any = optimizer
    if isinstance(given, type) or not isinstance(given, Optimizer):
        raise OptimizerError(
            f"{optimizer!r} is no optimizer",
            hint="an object with search(problem), such as ap.MCTS(), or the name of one",
        )
    return optimizer
