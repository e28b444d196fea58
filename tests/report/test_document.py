from hypothesis import given
from hypothesis import strategies as st

from neaptide.report.document import Table, document

CELL = st.text(alphabet=st.characters(codec="ascii", exclude_categories=["C"]), max_size=8)


def test_numbers_stand_to_the_right_and_the_rule_says_so():
    table = Table(("name", "bytes", "kind"), (("a", "1", "x"), ("bcdef", "1024", "yz")), left=frozenset({2}))
    assert table.plain().splitlines() == [
        "| name  | bytes | kind |",
        "|-------|------:|------|",
        "| a     |     1 | x    |",
        "| bcdef |  1024 | yz   |",
    ]


@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.tuples(*[CELL] * n), min_size=1, max_size=5)))
def test_every_line_has_one_width_and_the_same_columns(rows):
    lines = Table(rows[0], tuple(rows[1:])).plain().split("\n")
    assert len({len(line) for line in lines}) == 1
    columns = {line.replace("\\|", "").count("|") for line in lines}
    assert columns == {len(rows[0]) + 1}


def test_a_document_leaves_out_what_is_not_there():
    assert document("a", None, "", Table(("x",), ()), "b").plain() == "a\n\n| x   |\n|-----|\n\nb"
