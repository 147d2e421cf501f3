"""The lines of the SDK, and the line of a shell script, as a unified diff; written only where asked for."""

import difflib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from faultrun.adopt.find_launch import Start
from faultrun.adopt.program import KnownProgram
from faultrun.adopt.proposal import Proposal
from faultrun.adopt.source.sdk_lines import SdkLines, sdk_lines
from faultrun.adopt.source.training import Saves
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


def offered(program: KnownProgram) -> tuple[SdkLines, FileChange | None]:
    """The SDK's lines for the script, and the change of its file; None with the reason in the first."""
    try:
        texts = {one.shown: one.path.read_bytes().decode("utf-8") for one in program.code.modules}
    except (OSError, UnicodeDecodeError) as error:
        return SdkLines(why_not=f"{program.shown} cannot be read as UTF-8: {error}"), None
    lines = sdk_lines(program, texts)
    if lines.module is None:
        return lines, None
    return lines, FileChange(path=lines.module.path, before=lines.before, after=lines.after)


def with_lines(program: KnownProgram, lines: SdkLines) -> KnownProgram:
    """The program as it will be once the lines are in it."""
    training, recipe = program.training, program.recipe
    if lines.module is None:
        return program
    if lines.folder:
        saves = Saves(folder=lines.folder, where=f"where the SDK's lines in {lines.module.shown} save")
        training = replace(training, saves=(*training.saves, saves))
        training = replace(training, asks=training.asks or lines.resumes)
    elif recipe is not None and lines.resumes:
        recipe = replace(recipe, by_sdk=True)
    return replace(program, training=training, recipe=recipe)


def launch_change(start: Start, proposal: Proposal) -> FileChange | None:
    """The command of a shell script replaced by faultrun's, where it stands alone and is plain to see."""
    command = start.command
    if command is None or start.container is not None or not command.file or command.per_device:
        return None
    path = start.places.here(command.file)
    if path is None:
        return None
    try:
        before = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    if before[command.start : command.end] != command.text:
        return None
    new = written_line(start, proposal)
    after = patched(before, [Patch(start=command.start, end=command.end, new=new)])
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


def unified(changes: Sequence[FileChange]) -> Iterator[str]:
    """The lines of a diff that ``git apply`` and ``patch -p1`` take, from the working directory."""
    for change in changes:
        name = os.path.relpath(change.path)
        old, new = (text.splitlines(keepends=True) for text in (change.before, change.after))
        for line in difflib.unified_diff(old, new, fromfile=f"a/{name}", tofile=f"b/{name}"):
            yield line.rstrip("\n")
            if not line.endswith("\n"):
                yield _NO_END


def write(changes: Sequence[FileChange]) -> None:
    """Write the files, each in one step and with the mode that it has. ConfigError where one has changed."""
    for change in changes:
        path = change.path.resolve()
        with explained(path), locked(path):
            before = snapshot(path)
            if before.data != change.before.encode():
                because, hint = "somebody else has just changed it", "faultrun adopt again"
                raise ConfigError(f"{change.path} is left as it is", because=because, hint=hint)
            replace_file(LOCAL, path, change.after.encode(), before.attributes)
