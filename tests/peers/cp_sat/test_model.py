import pytest

from neaptide.errors import VerifyError
from neaptide_peers.cp_sat.builder import CpModelBuilder
from neaptide_peers.cp_sat.check import check_solution
from neaptide_peers.cp_sat.model import (
    CpModel,
    Cumulative,
    Interval,
    Linear,
    LinearConstraint,
    MaxEquality,
    NoOverlap2D,
    Variable,
    beyond_64_bits,
    negated,
    variable_of,
)
from peers.cp_sat.small_models import brute_force, holds, random_model

BIT, WIDE = Variable(((0, 1),)), Variable(((0, 9),))


def test_negation_of_a_literal():
    assert [negated(negated(x)) for x in (0, 3)] == [0, 3]
    assert [variable_of(x) for x in (4, negated(4))] == [4, 4]


@pytest.mark.parametrize(
    "parts",
    [
        {"variables": (Variable(()),)},
        {"variables": (Variable(((3, 2),)),)},
        {"variables": (Variable(((0, 2), (2, 4))),)},
        {"linear": (LinearConstraint(Linear.of(7)),)},
        {"linear": (LinearConstraint(Linear.of(0), when=(1,)),)},
        {"linear": (LinearConstraint(Linear.of(0), when=(negated(5),)),)},
        {"linear": (LinearConstraint(Linear.of(0), 2, 1),)},
        {"intervals": (Interval(Linear.of(1), 0),)},
        {"intervals": (Interval(Linear(((1, 0), (1, 1))), 2),)},
        {"no_overlap": ((0,),)},
        {"intervals": (Interval(Linear(), 1),), "cumulative": (Cumulative((0,), (), Linear()),)},
        {"intervals": (Interval(Linear(), 1),), "cumulative": (Cumulative((0,), (-1,), Linear()),)},
        {"intervals": (Interval(Linear(), 1),), "no_overlap_2d": (NoOverlap2D((0,), ()),)},
        {
            "intervals": (Interval(Linear(), 1), Interval(Linear(), 1, 0)),
            "no_overlap_2d": (NoOverlap2D((0,), (1,)),),
        },
        {"maxima": (MaxEquality(0, ()),)},
        {"hints": ((2, 0),)},
        {"objective": Linear.of(-1)},
    ],
)
def test_malformed_models_are_refused(parts):
    with pytest.raises(VerifyError, match="malformed"):
        CpModel(**{"variables": (BIT, WIDE), **parts})


def test_numbers_beyond_64_bits_are_found():
    assert beyond_64_bits(random_model(1)) is None
    for build in (
        lambda b: b.integer(0, 1 << 63),
        lambda b: [b.integer(-(1 << 62), 1 << 62) for _ in range(2)],
        lambda b: b.require(((1 << 40, b.integer(0, 1 << 30)),)),
        lambda b: b.require(((1, b.boolean()),), at_most=1 << 64),
        lambda b: b.require_maximum(b.boolean(), [Linear.of(b.boolean(), 1 << 63)]),
        lambda b: b.minimise(Linear.of(b.integer(0, 1 << 32), 1 << 32)),
        lambda b: b.interval(Linear.of(b.integer(0, 1 << 62)), 1 << 62),
        lambda b: b.cumulative([b.interval(Linear(), 1 << 40)], [1 << 40], Linear(constant=3)),
        lambda b: b.no_overlap_2d([b.interval(Linear(), 1 << 40)], [b.interval(Linear(), 1 << 40)]),
    ):
        builder = CpModelBuilder()
        build(builder)
        assert beyond_64_bits(builder.build())


@pytest.mark.parametrize("seed", range(150))
def test_the_check_knows_the_rules(seed):
    """It accepts exactly what brute force on single points accepts."""
    from itertools import product

    model = random_model(seed)
    domains = [[*range(v.lower - 1, v.upper + 2)] if i == 0 else v for i, v in enumerate(model.variables)]
    domains = [
        d if isinstance(d, list) else [x for a, b in d.ranges for x in range(a, b + 1)] for d in domains
    ]
    allowed = {x for low, high in model.variables[0].ranges for x in range(low, high + 1)}
    for values in product(*domains):
        try:
            check_solution(model, values)
            accepted = True
        except VerifyError:
            accepted = False
        assert accepted == (values[0] in allowed and holds(model, values))
    with pytest.raises(VerifyError):
        check_solution(model, ())


def test_some_random_models_have_no_solution():
    found = [brute_force(random_model(seed))[0] for seed in range(60)]
    assert any(found)
    assert not all(found)
