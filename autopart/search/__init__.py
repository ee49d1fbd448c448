"""Search over partitionings: what may be decided, what a decision costs, and who decides.

    Partitioning -> DecisionSpace -> Optimizer -> waves of jobs -> Executor -> Evaluator -> Cost

space/           the decisions that a partitioning offers; a file for each kind of decision
evaluator, cost  what a sequence of decisions costs
problem          what an optimizer sees: budget, incumbent, waves
optimizer        the interface and its registry; greedy, beam, ... and mcts/ implement it
executor         where waves run: here, in processes, on Ray
"""
