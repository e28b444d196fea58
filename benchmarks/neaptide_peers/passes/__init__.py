"""Ways to choose passes that the search of neaptide measures itself against. Each module has `strategy(seed)`."""
