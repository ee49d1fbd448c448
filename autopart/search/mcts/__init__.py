"""Monte Carlo tree search over decisions.

node        states as nodes of a graph, shared by all orders of decisions that lead to them
selection   which edge to follow: PUCT with priors, first-play values from what decisions did elsewhere
backup      what a rollout teaches: rewards of the edges above it, and gains of its decisions
tree        waves of leaves, and what they teach
recombination   parts of good states put together and climbed from, where the tree and single steps find nothing
mcts        the optimizer: tree, refinement, recombination
"""
