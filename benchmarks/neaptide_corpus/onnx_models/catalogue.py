"""The corpus by name. `load` builds a model once and keeps its file in a folder.

Names: `light_resnet50` (as shipped with the onnx package), `resnet18` (an export), `resnet18_int8` (its QDQ form),
`darts` (irregular).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import onnx

LIGHT: Final = (
    "light_bvlc_alexnet",
    "light_densenet121",
    "light_inception_v1",
    "light_inception_v2",
    "light_resnet50",
    "light_shufflenet",
    "light_squeezenet",
    "light_vgg19",
    "light_zfnet512",
)
EXPORTS: Final = (
    "two_convolutions",
    "mobilenet_v2",
    "resnet18",
    "unet",
    "densenet",
    "convnext",
    "vit",
    "bert",
    "gpt2",
    "lstm",
    "gru",
    "shufflenet",
    "inception",
    "squeezenet",
    "efficientnet",
    "resnext",
    "mixer",
    "temporal_convolutions",
    "yolo",
    "super_resolution",
)
IRREGULAR: Final = (
    "darts",
    "nasnet",
    "amoebanet",
    "pnas",
    "darts_imagenet",
    "randwire",
    "randwire_small",
    "randwire_wide",
    "randwire_deep",
    "randwire_long",
)
_INT8: Final = "_int8"
QUANTIZED: Final = tuple(name + _INT8 for name in EXPORTS)
NAMES: Final = (*LIGHT, *EXPORTS, *QUANTIZED, *IRREGULAR)


def path(name: str, folder: Path) -> Path:
    """The file of a model, written into `folder` the first time. Raises KeyError for a name that is not in `NAMES`.

    An export takes seconds, a quantized model a few more, all others milliseconds.
    """
    if name not in NAMES:
        raise KeyError(name)
    if name in LIGHT:
        return Path(onnx.__file__).parent / "backend/test/data/light" / f"{name}.onnx"
    target = folder / f"{name}.onnx"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = folder / f"{name}.{os.getpid()}"
        onnx.save(_built(name, folder), unfinished)
        unfinished.replace(target)
    return target


def load(name: str, folder: Path) -> onnx.ModelProto:
    """A model as an object; see `path`."""
    return onnx.load(path(name, folder))


def _built(name: str, folder: Path) -> onnx.ModelProto:
    if name in IRREGULAR:
        from neaptide_corpus.onnx_models.cells import build

        return build(name)[0]
    if name in QUANTIZED:
        from neaptide_corpus.onnx_models.quantized import quantize

        return quantize(load(name.removesuffix(_INT8), folder))
    from neaptide_corpus.onnx_models.exported import export

    return export(name)
