"""Words of journals and run.json are for ever: a class or field may be renamed, its word on the wire not.

``tests/data/wire_words.json`` holds every word, with its fields, that an earlier version wrote.
"""

import dataclasses
import json
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

from faultrun.journal.codec import wire_name
from faultrun.model.actions import Action
from faultrun.model.events import Event
from faultrun.model.spec.run_spec import RunSpec
from support.places import DATA

KEPT = json.loads((DATA / "wire_words.json").read_text())


def written() -> dict[str, set[str]]:
    """Every value that a journal or run.json can hold, by its word, with the words of its fields."""
    found: dict[str, set[str]] = {}
    waiting: list[Any] = [Event, Action, RunSpec]
    while waiting:
        kind = waiting.pop()
        waiting += get_args(kind)
        if dataclasses.is_dataclass(kind) and wire_name(kind) not in found:
            found[wire_name(kind)] = {word for word, _ in fields(kind)}
            waiting += [hint for _, hint in fields(kind)]
    return found


def fields(kind: Any) -> Iterator[tuple[str, Any]]:
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        yield field.metadata.get("wire") or field.name, hint
        if "flat" in field.metadata:
            for one in get_args(hint) or (hint,):
                yield from fields(one)


def test_every_word_and_field_that_an_earlier_version_wrote_is_still_written() -> None:
    now = written()
    assert set(KEPT) <= set(now)
    assert {word: set(names) - now[word] for word, names in KEPT.items() if set(names) - now[word]} == {}


def test_no_two_classes_have_one_word() -> None:
    events = [wire_name(kind) for kind in get_args(Event)]
    actions = [wire_name(kind) for kind in get_args(Action)]
    assert len(set(events)) == len(events)
    assert len(set(actions)) == len(actions)
