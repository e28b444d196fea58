"""The process of the command line: what it prints and where, how signals end it, and its exit codes."""
