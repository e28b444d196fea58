import json

import pytest

from neaptide.errors import UsageError
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.recompute_form import from_json
from support.together import together


def text(*nodes):
    return json.dumps(
        [
            {"name": f"n{index}", "size": 4, "deps": [], "flops": 0, "moved": 0, **node}
            for index, node in enumerate(nodes)
        ]
    )


def test_bytes_are_counted_while_operands_and_results_are_there():
    step = from_json(
        text(
            {"size": 10},
            {"size": 6, "deps": [0], "workspace": 5},
            {"size": 1, "deps": [1], "out": True},
            {"size": 2, "deps": [0]},
        )
    )
    assert Evaluator(step).bytes.tolist() == [10, 21, 17, 13]
    # Node 0 again before its last reader: it is freed in between.
    assert Evaluator(step, (0, 1, 2, 0, 3)).bytes.tolist() == [10, 21, 7, 11, 13]
    assert step.lower_bound_bytes == 21
    assert step.outputs == (2,)


def test_seconds_are_given_or_those_of_the_slower_of_work_and_traffic():
    step = from_json(text({"flops": 1e13}, {"moved": 1e12, "flops": 1}, {"seconds": 0.25}))
    assert step.seconds == (1.0, 1.0, 0.25)


def test_phases_are_in_our_words():
    assert from_json(text({"phase": "fwd"}, {"phase": "bwd"}, {})).phases == ("forward", "backward", "")


@together(
    ("content", "words"),
    [
        ("[", "cannot be read"),
        ("{}", "cannot be read"),
        ("[]", "has no nodes"),
        ('[{"name": "a", "size": 1.5, "deps": []}]', "cannot be read"),
        (text({"size": -1}), r">= 0 - at `\$\[0\].size`"),
        (text({}, {"size": 1 << 62}), r"\$\[1\].size"),
        (text({"size": 1 << 61}, {"size": 1 << 61}), "too large together"),
        (text({"deps": [0]}), "depends on node 0"),
        (text({}, {"deps": [-1]}), "depends on node -1"),
        (text({"flops": -1}), r"\$\[0\].flops"),
        ('[{"name": "a", "size": 1, "deps": [], "seconds": 1e999}]', "finite|cannot be read"),
    ],
)
def test_what_cannot_be_meant_is_refused(content, words):
    with pytest.raises(UsageError, match=words):
        from_json(content)
