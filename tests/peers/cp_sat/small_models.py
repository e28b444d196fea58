"""Random small constraint models, and brute force over all values: straight from the words, on single points."""

import random
from itertools import combinations, product

from neaptide_peers.cp_sat.builder import CpModelBuilder
from neaptide_peers.cp_sat.model import Linear, negated


def random_model(seed):
    rng = random.Random(seed)
    b = CpModelBuilder()
    whole = [b.integer(low := rng.randint(-2, 1), low + rng.randint(0, 3)) for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.3:
        whole.append(b.integer_in(((-1, 0), (2, 3))))
    flags = [b.boolean() for _ in range(rng.randint(1, 3))]
    everything = [*whole, *flags]

    def literal():
        flag = rng.choice(flags)
        return flag if rng.random() < 0.6 else negated(flag)

    def linear():
        chosen = rng.sample(everything, rng.randint(0, min(3, len(everything))))
        return Linear(tuple((rng.randint(-3, 3), v) for v in chosen), rng.randint(-2, 2))

    for _ in range(rng.randint(0, 3)):
        low = rng.choice([None, rng.randint(-4, 2)])
        high = rng.choice([None, (low or 0) + rng.randint(0, 5)])
        b.require(
            linear().terms, at_least=low, at_most=high, when=[literal() for _ in range(rng.randint(0, 2))]
        )
    if rng.random() < 0.3:
        b.require_maximum(rng.choice(whole), [linear() for _ in range(rng.randint(1, 3))])

    def presence():
        return literal() if rng.random() < 0.4 else None

    def interval(when):
        start = Linear((), rng.randint(-1, 3))
        if rng.random() < 0.7:
            start = Linear.of(rng.choice(whole), rng.choice([1, 1, 2, -1]), rng.randint(0, 2))
        return b.interval(start, rng.randint(1, 3), when=when)

    def span(when):
        start, end = (Linear.of(rng.choice(whole), rng.choice([1, 1, -1]), k) for k in (0, rng.randint(0, 3)))
        return b.span(start, end, least=rng.randint(1, 2), when=when)

    def group():
        return [rng.choice((interval, span))(presence()) for _ in range(rng.randint(1, 3))]

    if rng.random() < 0.4:
        b.no_overlap(group())
    if rng.random() < 0.4:
        intervals = group()
        b.cumulative(intervals, [rng.randint(0, 3) for _ in intervals], Linear(constant=rng.randint(1, 4)))
    if rng.random() < 0.4:
        there = [presence() for _ in range(rng.randint(1, 3))]
        b.no_overlap_2d([interval(when) for when in there], [interval(when) for when in there])
    if rng.random() < 0.7:
        b.minimise(linear())
    if rng.random() < 0.3:
        b.hint(rng.choice(whole), rng.randint(-2, 3))
    return b.build()


def brute_force(model):
    """(whether there is a solution, the least objective)."""
    domains = [[x for low, high in v.ranges for x in range(low, high + 1)] for v in model.variables]
    good = [values for values in product(*domains) if holds(model, values)]
    objective = model.objective or Linear()
    return bool(good), min((number(objective, values) for values in good), default=None)


def number(expression, values):
    total = expression.constant
    for factor, variable in expression.terms:
        total += factor * values[variable]
    return total


def holds(model, values):
    def true(literal):
        return values[literal] == 1 if literal >= 0 else values[-literal - 1] == 0

    def points(index):
        interval = model.intervals[index]
        if interval.when is not None and not true(interval.when):
            return set()
        start = number(interval.start, values)
        end = start + interval.size if interval.end is None else number(interval.end, values)
        return set(range(start, end))

    for c in model.linear:
        value = number(c.expression, values)
        low = value if c.lower is None else c.lower
        high = value if c.upper is None else c.upper
        if all(map(true, c.when)) and not low <= value <= high:
            return False
    for i in model.intervals:
        is_there = i.when is None or true(i.when)
        if i.end is not None and is_there and number(i.end, values) < number(i.start, values) + i.size:
            return False
    for m in model.maxima:
        if values[m.target] != max(number(e, values) for e in m.of):
            return False
    for group in model.no_overlap:
        if any(points(a) & points(b) for a, b in combinations(group, 2)):
            return False
    for c in model.cumulative:
        spans = [points(i) for i in c.intervals]
        for point in set().union(*spans):
            used = sum(d for span, d in zip(spans, c.demands, strict=True) if point in span)
            if used > number(c.capacity, values):
                return False
    for r in model.no_overlap_2d:
        cells = [set(product(points(x), points(y))) for x, y in zip(r.x, r.y, strict=True)]
        if any(a & b for a, b in combinations(cells, 2)):
            return False
    return True


def market_split(equations=5, columns=40, seed=1):
    """Half of many numbers, in several rows at once, as nearly as possible: a proof takes hours."""
    rng = random.Random(seed)
    b = CpModelBuilder()
    flags = [b.boolean() for _ in range(columns)]
    slack = []
    for _ in range(equations):
        factors = [rng.randint(0, 99) for _ in flags]
        over, under = b.integer(0, 9999), b.integer(0, 9999)
        half = sum(factors) // 2
        b.require([*zip(factors, flags, strict=True), (-1, over), (1, under)], at_least=half, at_most=half)
        slack += [(1, over), (1, under)]
    b.minimise(Linear(tuple(slack)))
    return b.build()
