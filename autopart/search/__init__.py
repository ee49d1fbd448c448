"""Search over partitionings: what may be decided, what a decision costs, and who decides.

    Partitioning -> DecisionSpace -> Optimizer -> waves of jobs -> Executor -> Evaluator -> Cost

roles            values that play the same part in repeated layers
decisions, space the legal next decisions of a partitioning
evaluator, cost  what a sequence of decisions costs
problem          what an optimizer sees: budget, incumbent, waves
optimizer        the interface and its registry; greedy, beam, ... and mcts/ implement it
executor         where waves run: here, in processes, on Ray
"""
