"""Names and users of what a trace records."""

import torch

from neaptide.frontends.recording.recording import Line, Record, Recording, TensorFacts, stem_of


def call(recording, *args, **kwargs):
    record = Record("call", recording.new_name("add"), torch.ops.aten.add.Tensor, args, kwargs)
    recording.records.append(record)
    return record


def test_a_name_is_given_once_and_is_no_word_of_python():
    recording = Recording()
    names = [recording.new_name(stem) for stem in ("add", "add", "sum", "sum", "add_1", "t_7", "t", "t_7")]
    assert names == ["add", "add_1", "sum_1", "sum_2", "add_2", "t_7", "t", "t_8"]


def test_calls_are_named_after_the_operation_without_its_overload():
    assert stem_of(torch.ops.aten.add_.Tensor) == "add_"
    assert stem_of(torch.ops.aten._softmax.default) == "_softmax"


def test_users_are_found_in_lists_and_keywords():
    recording = Recording()
    first = call(recording)
    second = call(recording, (first, None, (first,)), 2.0)
    third = call(recording, second, out=first)
    assert list(third.operands()) == [second, first]
    assert recording.users() == {first: [second, second, third], second: [third]}


def test_facts_stay_what_they_were_when_a_tensor_changes_its_shape():
    tensor = torch.zeros(2, 3)
    facts = TensorFacts.of(tensor)
    tensor.t_()
    assert (facts.shape, facts.strides) == ((2, 3), (3, 1))
    later = TensorFacts.of(tensor)
    assert (later.shape, later.strides, later.storage_key) == ((3, 2), (1, 3), facts.storage_key)


def test_a_line_reads_its_text(tmp_path):
    file = tmp_path / "code.py"
    file.write_text("first\n    second = 2\n")
    assert Line(str(file), 2).location == f"{file}:2: second = 2"
    assert Line(str(file), 9).code == ""
