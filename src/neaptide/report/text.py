"""Reports as text that can be piped and pasted: tables are aligned and are Markdown at the same time.

Each `..._text` is the plain form of the `..._document` of the same report; a terminal draws the document.
"""

from __future__ import annotations

from neaptide.report.comparison_text import comparison_document, is_within_budget
from neaptide.report.document import Document
from neaptide.report.model import Comparison, ProfileReport, RunReport
from neaptide.report.plan_text import plan_document, plan_text
from neaptide.report.profile_text import profile_document
from neaptide.report.run_text import run_document
from neaptide.report.shapes_comparison_text import shapes_comparison_document

__all__ = [
    "Document",
    "comparison_document",
    "comparison_text",
    "is_within_budget",
    "plan_document",
    "plan_text",
    "profile_document",
    "profile_text",
    "run_document",
    "run_text",
    "shapes_comparison_document",
]


def profile_text(report: ProfileReport) -> str:
    """Whether a step fits, what is alive at its peak, and what to do next."""
    return profile_document(report).plain()


def comparison_text(comparison: Comparison) -> str:
    """One table of programs side by side, predicted beside measured, with budget and bounds below it."""
    return comparison_document(comparison).plain()


def run_text(report: RunReport) -> str:
    """What a run of a plan used and returned."""
    return run_document(report).plain()
