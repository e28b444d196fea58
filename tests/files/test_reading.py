"""Reading files that somebody else wrote: bounds, decoding, and what is said of a file that cannot be read."""

import os

import pytest

from neaptide.errors import UnreadableFile
from neaptide.files import reading


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: None, "no such file"),
        (lambda path: path.mkdir(), "a folder"),
        (os.mkfifo, "a pipe"),
        (lambda path: path.symlink_to("/dev/zero"), "a device"),
        (lambda path: path.symlink_to(path), "symbolic links"),
    ],
)
def test_what_is_no_file_is_named(tmp_path, make, why):
    make(tmp_path / "a")
    with pytest.raises(UnreadableFile, match=why) as caught:
        reading.read_bytes(tmp_path / "a")
    assert caught.value.where == str(tmp_path / "a")
    assert caught.value.next_step


def test_a_file_that_is_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MOST_BYTES", 10)
    (tmp_path / "a").write_bytes(b"x" * 10)
    assert len(reading.read_bytes(tmp_path / "a")) == 10
    (tmp_path / "a").write_bytes(b"x" * 11)
    with pytest.raises(UnreadableFile, match="more than"):
        reading.read_bytes(tmp_path / "a")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("{}".encode("utf-16"), "UTF-16"),
        (b"\xe9", "no UTF-8"),
        (b"[" * 100_000, "too deeply"),
        (b"{", "truncated"),
    ],
)
def test_text_that_is_no_json_says_why(tmp_path, data, why):
    with pytest.raises(reading.JsonError, match=why):
        reading.decode_json(b'"' + data + b'"' if data == b"\xe9" else data)


def test_text_of_another_encoding_says_so(tmp_path):
    (tmp_path / "a").write_bytes("ab".encode("utf-16"))
    with pytest.raises(UnreadableFile, match="UTF-16"):
        reading.read_text(tmp_path / "a")
