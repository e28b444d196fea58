"""Orders of problems that have one structure as a whole: trees, series-parallel graphs, pumpkins; and dominant schedules.

The default of neaptide needs none of them, because its exact reductions do as much for every part of a problem.
`orders.structures` makes them methods by name.
"""
