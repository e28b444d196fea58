"""Changes of values and containers that a step reads."""

from __future__ import annotations

import numpy as np

from runtime.changes import everywhere, kind
from runtime.changing_case import Color, Settings

# -- values and containers


@kind
def number_changed(case):
    case.number = 3.0


@kind
def number_of_another_type(case):
    case.number = 2


@kind
def sign_of_zero(case):
    case.number = -0.0


@kind
def entry_of_a_dict_changed(case):
    case.table["a"] = 3.0


@kind
def entry_of_a_dict_added(case):
    case.table["c"] = 3.0


@kind
def entry_of_a_dict_renamed(case):
    case.table["c"] = case.table.pop("a")


@kind
def order_of_a_dict_changed(case):
    case.ordered.move_to_end("a")


@kind
def default_dict_changed(case):
    case.default["a"] = 4.0


@kind
def chain_map_changed(case):
    case.chained.maps[0]["a"] = 4.0


@kind
def chain_map_extended(case):
    case.chained.maps.insert(0, {"a": 4.0})


@kind
def user_dict_changed(case):
    case.wrapped["a"] = 4.0


@kind
def user_list_changed(case):
    case.listed[0] = 4.0


@kind
def deque_entry_changed(case):
    case.queue[0] = 4.0


@kind
def deque_extended(case):
    case.queue.append(4.0)


@kind
def deque_rotated(case):
    case.queue.rotate()


@kind
def set_extended(case):
    case.set.add(4.0)


@kind
def frozenset_replaced(case):
    case.frozen = frozenset({4.0})


@kind
def array_element_changed(case):
    case.array[0] = 4.0


@kind
def array_replaced(case):
    case.array = np.array([4.0, 2.0])


@kind
def packed_array_changed(case):
    case.packed[0] = 4.0


@kind
def bytes_changed(case):
    case.bytes[0] = 4


@kind
def mapping_behind_a_proxy_changed(case):
    case.behind["a"] = 4.0


@kind
def dataclass_field_changed(case):
    case.settings.power = 4.0


@kind
def list_in_a_dataclass_changed(case):
    case.settings.parts[1] = 4.0


@kind
def dataclass_replaced(case):
    case.settings = Settings(power=4.0)


@kind
def enumeration_member_changed(case):
    case.settings.color = Color.BLUE


@everywhere
def value_of_an_enumeration_member_changed(stack):
    Color.RED._value_ = 4.0
    stack.callback(lambda: setattr(Color.RED, "_value_", 1))


@kind
def slot_changed(case):
    case.slotted.gain = 4.0


@kind
def attribute_behind_a_property_changed(case):
    case.knob._level = 4.0


@kind
def namespace_changed(case):
    case.space.depth = 4.0


@kind
def deeply_nested_number_changed(case):
    case.nested[0]["deep"][0] = 4.0


@kind
def tuple_replaced(case):
    case.nested = (case.nested[0], 4.0)
