"""neaptide lowers the high-water mark of deep-learning programs."""

__version__ = "0.1.0"
