"""What is put aside while a step runs, in files and as short numbers, and how it comes back."""
