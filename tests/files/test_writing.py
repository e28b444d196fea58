from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from neaptide.cli.files import write_result
from neaptide.errors import UsageError
from neaptide.files.writing import write_atomic
from neaptide.report.charts import file
from neaptide.report.charts.chart import Axis, Chart, Plot
from neaptide.report.charts.file import save_chart

CHART = Chart("", "", (Plot(Axis(0, 1), Axis(0, 1)),), ())


def test_a_file_is_replaced_and_nothing_is_left_behind(tmp_path):
    target = tmp_path / "file.json"
    write_atomic(target, "one\n")
    write_atomic(target, "two\n")
    assert target.read_bytes() == b"two\n"
    assert list(tmp_path.iterdir()) == [target]


def test_a_write_that_fails_keeps_the_old_file(tmp_path):
    target = tmp_path / "file.json"
    write_atomic(target, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(target, "\ud800")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_new_file_has_the_usual_permissions_and_an_old_one_keeps_its_own(tmp_path):
    usual, made = tmp_path / "usual", tmp_path / "made"
    usual.write_text("")
    write_atomic(made, "")
    assert made.stat().st_mode == usual.stat().st_mode
    made.chmod(0o640)
    write_atomic(made, "new")
    assert made.stat().st_mode & 0o777 == 0o640


def test_a_link_stays_a_link(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    write_atomic(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


@pytest.fixture
def full_disk(monkeypatch):
    usual = Path.write_text

    def write_text(self, data, **options):
        usual(self, data[: len(data) // 2], **options)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", write_text)


@pytest.mark.usefixtures("full_disk")
def test_results_and_pictures_survive_a_full_disk(tmp_path):
    old = tmp_path / "old.svg"
    old.write_bytes(b"what was there")
    for write in (
        lambda: write_result(old, "a new result"),
        lambda: save_chart(old, CHART),
    ):
        with pytest.raises(UsageError) as caught:
            write()
        assert caught.value.why == os.strerror(errno.ENOSPC)
        assert old.read_bytes() == b"what was there"
    assert list(tmp_path.iterdir()) == [old]


def test_a_picture_that_fails_half_way_keeps_the_old_one(tmp_path, monkeypatch):
    old = tmp_path / "old.png"
    old.write_bytes(b"what was there")

    def save(path, _chart):
        assert path.suffix == ".png"
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    pytest.importorskip("matplotlib")
    monkeypatch.setitem(file.WRITERS, ".png", save)
    with pytest.raises(UsageError, match="the picture cannot be written"):
        save_chart(old, CHART)
    assert old.read_bytes() == b"what was there"
