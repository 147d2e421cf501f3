"""What stood in a configuration before a run set it, noted beside the file, and the way back key by key.

``.NAME.faultrun.before`` has for each key the text that was there, and what runs of ours have written since:
a value among these is ours, whichever run wrote it and whatever became of its log_dir; any other is not.
It goes when nothing of ours stands in the file any more.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from faultrun.configs.editors.registry import edit
from faultrun.configs.files import Attributes, Disk, FileSnapshot, replace_file
from faultrun.errors import ConfigError
from faultrun.model.edit import Change, Setting

_MOST_KNOWN = 64
_MARK = "faultrun-looks-here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Former:
    """One key: the text ``before`` ours (None: it was not there) and ``ours``, as the file spells them."""

    before: str | None
    ours: tuple[str, ...] = ()
    format: str = ""

    def is_ours(self, text: str | None) -> bool:
        """Whether ``text`` is a value of ours, in whatever quotes: a script may have dumped its file anew."""
        return text is not None and _unquoted(text) in map(_unquoted, self.ours)


def note_of(file: Path) -> Path:
    """Where the former values of ``file`` are noted."""
    return file.with_name(f".{file.name}.faultrun.before")


def formers(file: Path) -> dict[str, Former]:
    """The former values of ``file`` by key; none where there is no note that can be read."""
    return _read(note_of(file))


def formers_beside(file: Path) -> dict[str, Former]:
    """The former values of all files in its folder, for a copy of one that a run of ours had rewritten."""
    found: dict[str, Former] = {}
    for note in sorted(file.parent.glob(".*.faultrun.before")):
        for key, one in _read(note).items():
            known = found.get(key)
            found[key] = one if known is None else replace(known, ours=(*known.ours, *one.ours))
    return found


def _read(note: Path) -> dict[str, Former]:
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        keys = json.loads(note.read_bytes())["keys"]
        return {key: Former(**{**one, "ours": tuple(one["ours"])}) for key, one in keys.items()}
    return {}


def keep_former(
    disk: Disk, file: Path, settings: Iterable[tuple[Setting, Change]], attributes: Attributes
) -> None:
    """Note what ``settings`` are about to replace. The caller holds the file's lock."""
    known = formers(file)
    for setting, change in settings:
        if (one := known.get(setting.key)) is None or not one.is_ours(change.before):
            if change.nothing:
                continue
            one = Former(before=change.before, format=setting.format)
        others = tuple(text for text in one.ours if text != change.after)
        known[setting.key] = replace(one, ours=(*others, change.after)[-_MOST_KNOWN:])
    _write(disk, file, known, attributes)


def forget_former(disk: Disk, file: Path) -> None:
    """Nothing of ours stands in ``file`` any more."""
    disk.remove(note_of(file))


def given_back(file: Path, data: bytes, known: Mapping[str, Former]) -> tuple[bytes, Sequence[str]]:
    """``data`` with every value of ours as it was before, and the keys that still have one.

    What has another value is another writer's, and all else stays as it is.
    """
    left: list[str] = []
    for key, one in known.items():
        if (now := _one_back(file, data, key, one)) is None:
            left.append(key)
        else:
            data = now
    return data, left


def _one_back(file: Path, data: bytes, key: str, one: Former) -> bytes | None:
    """None where the former text cannot be put back and proved to be what was meant."""
    try:
        marked = edit(str(file), data, key, _MARK, format=one.format)
        if (before := marked.change.before) is None or not one.is_ours(before):
            return data
        mark, ours = marked.change.after.encode(), before.encode()
        at = marked.data.find(mark)
        if marked.data.count(mark) != 1 or data[at : at + len(ours)] != ours:
            return None
        if one.before is None:
            return _removed(file, data, (at, at + len(ours)), key, one, marked.data)
        put = data[:at] + one.before.encode() + data[at + len(ours) :]
        again = edit(str(file), put, key, _MARK, format=one.format)
    except ConfigError:
        return None
    same = again.data.split() == marked.data.split()  # an empty value may have had less space around it
    return put if again.change.before == one.before and same else None


def _removed(
    file: Path, data: bytes, value: tuple[int, int], key: str, one: Former, marked: bytes
) -> bytes | None:
    """Without a key that we added: its line, or all from the comma before it; proved by adding it again."""
    start, end = value
    line, next_line = data.rfind(b"\n", 0, start) + 1, data.find(b"\n", end) + 1 or len(data)
    without_line = data[:line] + data[next_line:]
    without_entry = data[: max(data.rfind(b",", 0, start), 0)] + data[end:]
    for found in (without_line, without_entry):
        with suppress(ConfigError):
            again = edit(str(file), found, key, _MARK, format=one.format)
            whole_line = found is without_line and sorted(again.data.splitlines()) == sorted(
                marked.splitlines()
            )
            if again.change.before is None and (whole_line or again.data == marked):
                return found
    return None


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _write(disk: Disk, file: Path, known: Mapping[str, Former], attributes: Attributes) -> None:
    if known == formers(file):
        return
    text = json.dumps({"version": 1, "keys": {key: asdict(one) for key, one in known.items()}}, indent=2)
    replace_file(disk, note_of(file), f"{text}\n".encode(), attributes.of_a_copy())


def under_ours(file: Path, seen: FileSnapshot) -> FileSnapshot:
    """``seen`` as it was before any run of ours set a value there."""
    data, _ = given_back(file, seen.data, formers(file))
    return replace(seen, data=data)
