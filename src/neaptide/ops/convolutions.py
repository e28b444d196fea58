"""Where the arguments of convolutions stand, and what joins and cuts their channels.

Facts of the PyTorch operator schemas (`native_functions.yaml`). A convolution that is not transposed, of one group, is a sum
over the channels of its input: cut in two, it is the sum of two convolutions. Its gradients follow piece by piece.
"""

from __future__ import annotations

from typing import Final

CONVOLUTION: Final = "aten.convolution.default"
"""input, weight, bias, stride, padding, dilation, transposed, output padding, groups."""

TRANSPOSED: Final = 6
GROUPS: Final = 8

CONVOLUTION_GRADIENTS: Final = "aten.convolution_backward.default"
"""gradient, input, weight, sizes of the bias, stride, padding, dilation, transposed, output padding, groups, mask.

The mask says which gradients are made: of the input, the weight and the bias. Each is computed by itself.
"""

GRADIENTS_TRANSPOSED: Final = 7
GRADIENTS_GROUPS: Final = 9
GRADIENTS_MASK: Final = 10

CHANNELS: Final = 1
"""Dim of the channels in an input, and of the channels that are read in a weight."""

JOIN: Final = "aten.cat.default"
"""A list of tensors and a dim."""

CUT: Final = "aten.slice.Tensor"
"""A tensor, a dim, the first element and the one behind the last."""

ADD_ONTO: Final = "aten.add_.Tensor"
"""Adds the second tensor to the first."""
