"""The table and the picture of the front page."""

import json
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import front_page
from bench_record import MIB


def model(name: str, curves=()):
    peaks = {
        "eager": (400, 1.0),
        "by block": (200, 1.3),
        "plan as by block": (199, 1.1),
        "inductor": (300, 0.9),
    }
    programs = [
        {
            "program": program,
            "measured_allocator_peak_bytes": peak * MIB,
            "cpu_ratio": ratio,
            "cpu_seconds": ratio,
            "bitwise_equal": program != "inductor",
        }
        for program, (peak, ratio) in peaks.items()
    ]
    return {"spec": f"{name}@small", "programs": programs, "curves": dict(curves)}


CURVES = {"eager": [2 * MIB, 400 * MIB], "plan as by block": [MIB, 199 * MIB]}
RESULT = {
    "made": "2026-01-02T03:04:05+00:00",
    "machine": {"cpu": "a processor", "threads": 1, "cores": 2, "load_average": [1.0, 3.0, 2.0]},
    "versions": {"torch": "2.13"},
    "repeats": 5,
    "rows": [model("gpt2", CURVES), model("unet")],
}


def test_a_cell_has_the_peak_and_the_time_over_eagers():
    text = front_page.table(RESULT)
    assert "| U-Net | 400 MiB, 1.00 | 200 MiB, 1.30 | 199 MiB, 1.10 | 300 MiB, 0.90 |" in text
    assert "2 of 2 plans have eager's bits" in text
    assert "load 3 on 2 cores" in text


def test_the_picture_names_both_peaks():
    _, svg = front_page.written(RESULT, "<!-- front_page:begin -->\n<!-- front_page:end -->")
    texts = [element.text for element in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert "eager, 400 MiB" in texts
    assert "neaptide, 199 MiB" in texts


def test_readme_and_picture_are_those_of_the_result():
    result = json.loads((front_page.RESULTS / "front_page.json").read_text(encoding="utf-8"))
    page = front_page.README.read_text(encoding="utf-8")
    assert front_page.written(result, page) == (page, front_page.PICTURE.read_text(encoding="utf-8"))


def test_a_curve_ends_at_the_peak_that_was_allocated():
    torch = pytest.importorskip("torch")
    kept = torch.zeros(1000)

    def run():
        large = torch.zeros(5000)
        small = large[:10] + 1
        del large
        return small.sum() + torch.zeros(100).sum()

    points = front_page.curve(run, lambda: [kept])
    tensors = 4 * (1000 + 5000 + 10)
    assert tensors <= max(points) < tensors + 100  # PyTorch wraps numbers
