"""Entry points for other libraries, which call neaptide by their own rules."""
