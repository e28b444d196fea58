"""What no order can go below: minimum cuts, certified sub-problems, what a budget can reach."""
