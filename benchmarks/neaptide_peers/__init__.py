"""What neaptide measures itself against: methods of others, and solvers that decide no default answer.

They are usable by name: `--strategy checkmate`, `--method cp_windows`. `neaptide.named_peers` loads them.
"""
