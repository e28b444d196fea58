"""Kinds of change between two calls of a step, by name: of one object, or of the whole process."""

from __future__ import annotations

KINDS = {}


def kind(change):
    """A change of one object; made on the planned case and on its eager twin."""
    KINDS[change.__name__] = (change, False)
    return change


def everywhere(change):
    """A change of the whole process or thread: made once, and undone by the stack that it is given."""
    KINDS[change.__name__] = (change, True)
    return change


def set_for(stack, owner, name, value):
    before = owner.__dict__.get(name, KINDS)
    setattr(owner, name, value)
    stack.callback(lambda: delattr(owner, name) if before is KINDS else setattr(owner, name, before))
