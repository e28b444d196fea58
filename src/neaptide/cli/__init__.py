"""The command line: `neaptide profile|plan|run|compare|explain|doctor|devices`.

Nothing but click and the standard library is imported until a command does its work.
"""
