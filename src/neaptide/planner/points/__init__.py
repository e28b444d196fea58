"""One program for all shapes that decides with exact sizes, while it runs, what is evicted and how it comes back."""
