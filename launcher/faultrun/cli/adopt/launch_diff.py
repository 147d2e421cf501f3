"""The command in a shell script, replaced by faultrun's, as a unified diff; written only where asked for."""

import difflib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from faultrun.adopt.find_launch import Start
from faultrun.adopt.proposal import Proposal
from faultrun.configs.files import LOCAL, explained, locked, replace_file, snapshot
from faultrun.errors import ConfigError
from faultrun.text.patch import Patch, patched

_NO_END = "\\ No newline at end of file"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """A file's text before and after."""

    path: Path
    before: str
    after: str


def launch_change(start: Start, proposal: Proposal) -> FileChange | None:
    """The command of a shell script replaced by faultrun's, where it stands alone and is plain to see."""
    command = start.command
    if command is None or start.container is not None or not command.file or command.per_device:
        return None
    if (path := start.places.here(command.file)) is None:
        return None
    try:
        before = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    if before[command.start : command.end] != command.text:
        return None
    after = patched(before, [Patch(start=command.start, end=command.end, new=written_line(start, proposal))])
    return FileChange(path=path, before=before, after=after) if after != before else None


def written_line(start: Start, proposal: Proposal) -> str:
    """The command with the script's own words as they are written, variables and all."""
    command = start.command
    tail = command.tail(len(proposal.launch.program)) if command is not None else None
    if tail is None or start.container is not None:
        return proposal.line
    head = proposal.words[: len(proposal.words) - len(proposal.launch.program)]
    return f"{proposal.lined(head)} {tail}"


def typed_loop(start: Start, proposal: Proposal) -> str:
    """A loop that was typed, with the command in it replaced; "" where none was typed."""
    command = start.command
    if command is None or command.file or not command.in_loop or command.per_device:
        return ""
    if start.container is not None:
        return ""
    return f"{start.said[: command.start]}{written_line(start, proposal)}{start.said[command.end :]}"


def unified(changes: Sequence[FileChange]) -> str:
    """A diff that ``git apply`` and ``patch -p1`` take, from the working directory."""
    lines: list[str] = []
    for change in changes:
        name = os.path.relpath(change.path)
        old, new = (text.splitlines(keepends=True) for text in (change.before, change.after))
        there = f"a/{name}" if os.path.lexists(change.path) else "/dev/null"
        told = difflib.unified_diff(old, new, fromfile=there, tofile=f"b/{name}")
        lines += (line if line.endswith("\n") else f"{line}\n{_NO_END}\n" for line in told)
    return "".join(lines)


def write(change: FileChange) -> None:
    """Write the file in one step and with the mode that it has. ConfigError where it has changed."""
    path = change.path.resolve()
    with explained(path), locked(path):
        before = snapshot(path)
        if before.data != change.before.encode():
            because, hint = "another program has just changed it", "faultrun adopt again"
            raise ConfigError(f"{change.path} is left as it is", because=because, hint=hint)
        replace_file(LOCAL, path, change.after.encode(), before.attributes)
