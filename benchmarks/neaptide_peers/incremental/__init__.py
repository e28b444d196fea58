"""Ordering again after an edit, with the proofs that survive it: the incremental scheduling of MAGIS (`reschedule`).

No planner of neaptide asks for it, because the outer search plans each candidate anew under its budget. It comes with the
peers so that the method stays reachable and measured (`benchmarks/order_edits.py`).
"""
