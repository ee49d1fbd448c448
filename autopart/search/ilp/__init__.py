"""The sharding problem as an integer program, with a certificate of how far from optimal an answer can be.

What is chosen, from a starting state, over the axes of a search:

    s_i      for each op, a strategy: a tile mapping, none, or a passage of what is pending, per axis  `strategies.py`
             for each value that waits for several uses, is an argument or an output: a label, which
             says what each axis does to it while it waits                                             `nodes.py`

    minimise    sum_i c_i(s_i)  +  sum_ij r_ij(s_i, s_j)

    c_i      seconds of the op, times how often it runs              `least_seconds.py` for the bound, `op_seconds.py`
    r_ij     seconds of the redistribution between what i leaves and what j needs                      `formulation.py`
             after an op   from the label it leaves to the label in which the value waits              `Flow.edges`
             before a use  from there to the label in which the op reads, times the share of the use
             of a value that is read once: from the first to the last
             a use's part of a move that it may share, by labels, for the bound                       `shared_moves.py`
             prices are of single collectives and their cheapest sequences,                            `label_steps.py`
             with the stretches that a use reads beside its tile,                                   `stretch_ways.py`
             exact for the moves that a solution makes,                                            `lowered_moves.py`
             and computed by the search's workers                                                      `prices.py`

    subject to  sum_i live[t, i] bytes_i(s_i) <= memory of a device, at the peaks of states seen       `held_bytes.py`
                axes that take one mapping divide its extent, and labels divide their dims             `strategies.py`
                a reduction stays pending only for a reader that has a passage for it                  `pending_ways.py`
                an argument that is updated is stored as its next value is                             `formulation.py`
                what earlier tactics decided, kept values included, stays as it is                     `nodes.py`

No strategy list holds what is not legal, so the last four are no rows of the program. It is a pairwise problem, which
`solver/` solves. Two sets of costs stand on the same nodes (`sharding_model.py`):

    least      never more than the simulator says, whatever is fused, combined or shared: the bound           `bound.py`
    planned    as a simulated state costs, scaled by what a strategy changes: the plan

Equal layers are one node of the plan, that counts as often as there are layers; the bound is about every op, with what
layers have in common computed once (`every_op.py`), and with the moves that decide it priced as lowerings plan them
(`decisive_moves.py`).
A plan's moves are priced exactly and it is solved anew; it becomes decisions whose propagation leads to it
(`decode.py`); the lowered program is priced, and the next plan is made beside it (`planning.py`). A state is a choice
too (`incumbent.py`): where a plan starts, and what large neighbourhoods change in part (`neighbourhood.py`). Plans, the
bound and a tree search share a budget (`answer_first.py`).
"""
