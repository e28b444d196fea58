"""What `report.model.Report` promises, of every kind of report: as JSON, and as a document."""

from __future__ import annotations

import copy
import math
from dataclasses import fields

import msgspec

from neaptide.report.comparison_text import comparison_document, shapes_comparison_document
from neaptide.report.document import Table
from neaptide.report.fit_text import fit_document
from neaptide.report.model import (
    CapturedReport,
    Comparison,
    FitReport,
    ProfileReport,
    Report,
    RunReport,
    ShapesComparison,
    to_json,
)
from neaptide.report.profile_text import profile_document
from neaptide.report.run_text import run_document
from report import samples
from support.together import together

DOCUMENTS = {
    ProfileReport: (samples.profile, profile_document),
    FitReport: (samples.fit, fit_document),
    Comparison: (samples.comparison, comparison_document),
    ShapesComparison: (samples.shapes_comparison, shapes_comparison_document),
    RunReport: (samples.run, run_document),
}


def test_every_report_is_among_them():
    kinds = {*Report.__subclasses__(), *CapturedReport.__subclasses__()} - {CapturedReport}
    assert kinds == set(DOCUMENTS)


@together("kind", DOCUMENTS)
def test_json_has_every_field_and_is_read_back(kind):
    report = DOCUMENTS[kind][0]()
    text = to_json(report)
    assert msgspec.json.decode(text, type=kind) == report
    assert list(msgspec.json.decode(text)) == [field.name for field in fields(kind)]


@together("kind", DOCUMENTS)
def test_a_document_tells_its_target_and_origin_in_well_formed_tables_and_leaves_the_report_as_it_is(kind):
    make, document_of = DOCUMENTS[kind]
    report = make()
    before = copy.deepcopy(report)
    document = document_of(report)
    text = document.plain()
    assert document_of(report).plain() == text
    assert report == before
    assert report.name in text
    assert all(version in text for version in report.versions.values())
    assert f"seed {report.seed}" in text
    assert not any(word in text.split() for word in ("None", str(math.nan), str(math.inf)))
    assert not any(line != line.rstrip() for line in text.splitlines())
    for table in (block for block in document.blocks if isinstance(block, Table)):
        assert {len(row) for row in table.rows} == {len(table.header)}
        assert len({len(line) for line in table.plain().splitlines()}) == 1
