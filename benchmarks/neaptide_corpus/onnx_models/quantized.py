"""QDQ int8 forms: static quantization by ONNX Runtime with random calibration data."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from neaptide_corpus.onnx_models.feeds import random_feeds

_SAMPLES: Final = 2


class _RandomData(CalibrationDataReader):  # type: ignore[misc]  # ONNX Runtime has no types
    def __init__(self, model: onnx.ModelProto) -> None:
        self._samples = iter([random_feeds(model, seed) for seed in range(_SAMPLES)])

    def get_next(self) -> dict[str, npt.NDArray[np.generic]] | None:
        return next(self._samples, None)


def quantize(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with QuantizeLinear and DequantizeLinear around its products, signed 8-bit throughout. Seconds."""
    level = logging.getLogger().level
    logging.getLogger().setLevel(logging.ERROR)
    try:
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "quantized.onnx"
            quantize_static(
                model,
                target,
                _RandomData(model),
                quant_format=QuantFormat.QDQ,
                activation_type=QuantType.QInt8,
                weight_type=QuantType.QInt8,
            )
            return onnx.load(target)
    finally:
        logging.getLogger().setLevel(level)
