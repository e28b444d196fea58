"""What a trace leaves behind: records of operations, their sizes and their values."""
