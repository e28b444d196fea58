"""CSV in and out: aliases, gaps, fixed offsets, and a clear refusal of everything that cannot be meant."""

import doctest
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.errors import LayoutProblemError
from neaptide.layout import minimalloc_csv
from neaptide.layout.minimalloc_csv import read_csv, write_csv
from neaptide.layout.problem import Buffer, Gap, LayoutProblem
from neaptide.layout.result import Layout
from support.together import together

PLAIN = "id,lower,upper,size\na,0,3,4\nb,1,2,5\n"


def test_columns_in_any_order_with_every_optional_one():
    text = (
        "size,offset,id,gaps,upper,kind,alignment,lower\n"
        "8,,a,2-3 4-6@0:4,7,activation,4,0\n"
        '16,32,"b, again",,2,,,1\n'
    )
    problem = read_csv(text)
    assert problem.buffers == (
        Buffer("a", 0, 7, 8, 4, gaps=(Gap(2, 3), Gap(4, 6, (0, 4))), kind="activation"),
        Buffer("b, again", 1, 2, 16, offset=32),
    )


@pytest.mark.parametrize("header", ["buffer,start,end,size,gaps", "buffer_id,begin,end,size,gaps"])
def test_end_counts_the_last_step_in(header):
    assert read_csv(f"{header}\na,0,9,4,2-3\n").buffers == (Buffer("a", 0, 10, 4, gaps=(Gap(2, 4),)),)


def test_start_with_upper_is_half_open():
    assert read_csv("id,start,upper,size\na,0,9,4\n").buffers[0].end == 9


@together(
    "text",
    [
        "\ufeff" + PLAIN,
        PLAIN.replace("\n", "\r\n"),
        "\n\n" + PLAIN.replace("\n", "\n\n"),
        PLAIN.rstrip("\n"),
        PLAIN.replace(",", " , "),
        '"id","lower","upper","size"\n"a","0","3","4"\n"b","1","2","5"\n',
        PLAIN.replace("a,0,3,4", "a,+0,003,4"),
    ],
    ids=["byte order mark", "CRLF", "blank lines", "no last newline", "spaces", "quotes", "signs and zeros"],
)
def test_harmless_forms_mean_the_same(text):
    assert read_csv(text) == read_csv(PLAIN)


def test_hint_is_left_out_with_a_note(caplog):
    assert read_csv("id,lower,upper,size,hint\na,0,3,4,12\n").buffers[0].offset is None
    assert "hint" in caplog.text


def test_name_of_the_problem_is_that_of_the_file():
    assert read_csv(PLAIN, path="folder/A.csv").name == "A"


HEADERS = [
    ("", "no buffers", "x.csv"),
    (" \n\n", "no buffers", "x.csv"),
    ("id,lower,upper,size\n", "no buffers", "x.csv:1"),
    ("0,995328,1000448,656384\n", "looks like a line of numbers", "x.csv:1"),
    ("id,lower,size\na,0,3\n", "no column 'upper'", "x.csv:1"),
    ("\nid,upper,size\na,0,3\n", "no column 'lower'", "x.csv:2"),
    ("id,lower,upper,size,size\na,0,3,4,4\n", "two columns say 'size'", "x.csv:1"),
    ("id,lower,start,upper,size\na,0,0,3,4\n", "two columns say 'lower'", "x.csv:1"),
    ("id,lower,upper,size,alignement\na,0,3,4,4\n", "did you mean alignment?", "x.csv:1"),
    ("id,lower,upper,size,\na,0,3,4,\n", "no column ''", "x.csv:1"),
    ("ID,lower,upper,size\na,0,3,4\n", "did you mean id?", "x.csv:1"),
]


@together(("text", "words", "where"), HEADERS)
def test_header_that_cannot_be_meant(text, words, where):
    with pytest.raises(LayoutProblemError) as caught:
        read_csv(text, path="x.csv")
    assert words in caught.value.render()
    assert caught.value.where == where


LINES = [
    ("c,0,3,0", "has 0 bytes", "size"),
    (f"c,0,3,{2**62}", f"has {2**62} bytes", "size"),
    (f"c,0,3,{2**62 - 9}", "all buffers together", "size"),
    (f"c,0,{2**62},4", "the limit is", "upper"),
    (f"c,0,3,{10**35}", "is too long", "size"),
    ("c,-1,3,4", "before step 0", "lower"),
    ("c,3,3,4", "empty lifetime", "upper"),
    ("a,4,5,4", "two buffers have the name 'a'", "id"),
    (",4,5,4", "has no id", "id"),
    ("c,1.5,3,4", "'1.5' is no whole number", "lower"),
    ("c,0,1e3,4", "'1e3' is no whole number", "upper"),
    ("c,0,3,4KiB", "'4KiB' is no whole number", "size"),
    ("c,0,3,\u0663", "is no whole number", "size"),
    ("c,0,3", "the line has 3 fields", None),
    ("c,0,3,4,5", "the line has 5 fields", None),
    ("c, and more,0,3,4", "double quotes", None),
    ('"c,0,3,4', "no CSV", None),
    ('"c"d,0,3,4', "no CSV", None),
]


@together(("line", "words", "column"), LINES)
def test_line_that_cannot_be_meant(line, words, column):
    with pytest.raises(LayoutProblemError) as caught:
        read_csv(PLAIN + line + "\nd,7,9,1\n", path="x.csv")
    assert words in caught.value.render()
    assert caught.value.where == ("x.csv:4" if column is None else f"x.csv:4, column {column!r}")
    assert caught.value.exit_code == 2


OPTIONAL = [
    ("c,0,9,8,3,,", "no power of two", "alignment"),
    ("c,0,9,8,two,,", "no whole number", "alignment"),
    ("c,0,9,8,8,,12", "no multiple of its alignment", "offset"),
    ("c,0,9,8,,,-1", "negative offset", "offset"),
    ("c,0,9,8,,,2", "overlap", "offset"),
    (f"c,0,9,8,,,{2**62 - 1}", "too far up", "offset"),
    ("c,0,9,8,,,0.5", "no whole number", "offset"),
    ("c,0,9,8,,3,", "'3' is no gap", "gaps"),
    ("c,0,9,8,,3-4-5,", "is no gap", "gaps"),
    ("c,0,9,8,,4-10,", "outside its lifetime", "gaps"),
    ("c,0,9,8,,4-5@3:9,", "window", "gaps"),
]


@together(("line", "words", "column"), OPTIONAL)
def test_optional_field_that_cannot_be_meant(line, words, column):
    text = f"id,lower,upper,size,alignment,gaps,offset\na,0,3,4,1,,0\n{line}\n"
    with pytest.raises(LayoutProblemError) as caught:
        read_csv(text)
    assert words in caught.value.render()
    assert caught.value.where == f"line 3, column {column!r}"


def test_title_of_an_alias_is_named_as_it_stands():
    with pytest.raises(LayoutProblemError) as caught:
        read_csv("buffer,start,end,size\na,0,x,4\n")
    assert caught.value.where == "line 2, column 'end'"


def test_written_columns_are_those_in_use():
    problem = read_csv(PLAIN)
    assert write_csv(problem) == PLAIN
    placed = write_csv(problem, Layout((5, 0), 9))
    assert placed == "id,lower,upper,size,offset\na,0,3,4,5\nb,1,2,5,0\n"
    assert [buffer.offset for buffer in read_csv(placed).buffers] == [5, 0]


@st.composite
def buffers(draw):
    name = draw(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1)).strip()
    start, span = draw(st.integers(0, 2**40)), draw(st.integers(3, 2**40))
    nbytes = draw(st.integers(2, 2**40))
    alignment = 2 ** draw(st.integers(0, 9))
    offset = draw(st.none() | st.integers(0, 2**40).map(lambda k: k * alignment))
    window = draw(st.none() | st.just((1, nbytes)))
    gaps = draw(st.just(()) | st.just((Gap(start + 1, start + 2, window),)))
    kind = draw(st.sampled_from(["", "activation", "workspace"]))
    return Buffer(name or "x", start, start + span, nbytes, alignment, offset, gaps, kind)


@given(st.lists(buffers(), min_size=1, max_size=6, unique_by=lambda buffer: buffer.name))
def test_what_is_written_is_read_back(found):
    free = [
        buffer if k == 0 else Buffer(**{**as_fields(buffer), "offset": None})
        for k, buffer in enumerate(found)
    ]
    problem = LayoutProblem(tuple(free))
    assert read_csv(write_csv(problem)) == problem


def as_fields(buffer):
    return {name: getattr(buffer, name) for name in Buffer.__slots__}


@given(st.text())
def test_any_text_is_a_problem_or_a_clear_error(text):
    with suppress(LayoutProblemError):
        assert len(read_csv(text)) > 0


@given(st.lists(st.text(st.sampled_from("0123456789-+.e@:, \t\"'\x00\r\n"), max_size=40), max_size=5))
def test_any_lines_below_a_header_are_a_problem_or_a_clear_error(lines):
    with suppress(LayoutProblemError):
        assert len(read_csv("id,lower,upper,size,alignment,gaps,offset\n" + "\n".join(lines))) > 0


def test_examples_in_the_docstrings():
    assert doctest.testmod(minimalloc_csv).failed == 0
