"""``faultrun adopt``: from the command of another launcher to ``faultrun.yaml`` and one line to type."""

import difflib
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from faultrun.adopt.container import command_lines
from faultrun.adopt.find_launch import Start, read_start
from faultrun.adopt.launch import AdoptedOption
from faultrun.adopt.program import KnownProgram, read_program
from faultrun.adopt.proposal import Proposal, propose, quoted, yaml_page
from faultrun.adopt.questions import FOLDER_OPTION, RESUME, Question, answered, questions
from faultrun.cli.adopt.check_options import refusal_of, same_options, without_effect
from faultrun.cli.adopt.launch_diff import FileChange, launch_change, typed_loop, unified, write, written_line
from faultrun.cli.console import answer
from faultrun.cli.options.config_beside_script import CONFIG_NAME
from faultrun.cli.verbs import example
from faultrun.errors import ConfigError, UsageError
from faultrun.files import bytes_from, replace_durably
from faultrun.terminal import is_terminal

_HEAD_LINES = 4
_MOST_BYTES = 4 << 20
_INTRODUCTION = (
    "A restart goes on where training was if faultrun knows this, and no script tells it for sure.\n"
    "y takes what is offered, Enter or n leaves it open.\n"
)
_OWN_OPTIONS = frozenset({"--force", "--diff", "--apply", "--json"})
_NOT_WRITTEN = "not written: --apply writes it"
_TRIES = 3
_STDIN, _STDERR = 0, 2
_SDK = "how the SDK saves when a rank dies: faultrun docs make-your-script-fault-tolerant"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Adopted:
    """What one call found. ``path`` is where ``page`` goes, None where the script is not here.

    ``refused`` is why a run would not start; ``change`` is what becomes of the shell script.
    """

    start: Start
    proposal: Proposal
    page: str
    path: Path | None
    refused: str
    change: FileChange | None

    @property
    def words(self) -> tuple[str, ...]:
        return self.proposal.words if self.path is not None else self.proposal.whole_words

    @property
    def missing(self) -> list[str]:
        where = "faultrun.yaml" if self.path is not None else "the command"
        asked = [f"{one.asks} Say it in {where}: {one.option}" for one in self.proposal.questions]
        return [*asked, *map(str, self.proposal.missing), *([self.refused] if self.refused else [])]

    @property
    def notes(self) -> list[str]:
        return [*self.start.notes, *self.proposal.notes]


@click.command(
    context_settings={"allow_interspersed_args": False},
    epilog=example("faultrun adopt torchrun --nproc-per-node=4 train.py", "faultrun adopt job.sbatch"),
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND|FILE")
@click.option("--force", is_flag=True, help="Write over a faultrun.yaml that is there.")
@click.option("--diff", is_flag=True, help="Write nothing; print a diff for git apply.")
@click.option("--apply", "applies", is_flag=True, help="Write what --diff shows.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def adopt(words: tuple[str, ...], force: bool, diff: bool, applies: bool, as_json: bool) -> int:
    """Find out how a training is started, ask where it saves and how it resumes; write faultrun.yaml.

    COMMAND is what starts it now, such as "torchrun --nproc-per-node=4 train.py --lr 1e-3" (in quotation
    marks or not); FILE is a shell or batch script, a manifest, a Dockerfile or the Python script. Nothing of
    it is run. With --diff, standard output is the diff and the report goes to standard error.
    """
    may_ask = not as_json and is_terminal(_STDIN) and is_terminal(_STDERR)
    done = _adopted(words, may_ask=may_ask, force=force)
    written = _written(done.path, done.page, force, writes=applies or not diff)
    changes = [] if done.change is None else [done.change]
    if done.path is not None and written == _NOT_WRITTEN:
        before = _before(done.path, os.path.relpath(done.path)) or ""
        changes.append(FileChange(path=done.path, before=before, after=done.page))
    if applies and done.change is not None:
        write(done.change)
    tell = (lambda text: click.echo(text, err=True)) if diff and not as_json else answer
    if as_json:
        answer(json.dumps(_object(done, written, changes), indent=2))
    else:
        _tell(done, written, tell)
        if applies:
            changed = os.path.relpath(done.change.path) if done.change is not None else "nothing"
            tell(f"\nchanged: {changed}")
        if done.change is None and (diff or applies):
            _section(tell, "no change of a script:", ["no shell script here holds the command", _SDK])
    if diff and not as_json:
        click.echo(unified(changes), nl=False)
    return 0


def _adopted(words: Sequence[str], *, may_ask: bool, force: bool) -> _Adopted:
    start = read_start(words, Path.cwd(), same_options)
    program = read_program(start.launch, start.places, os.environ)
    _refuse_behind(words, program.script)
    path = program.script.parent / CONFIG_NAME if program.script is not None else None
    open_ones, answers = questions(start.launch, program), tuple[AdoptedOption, ...]()
    if may_ask and (force or path is None or not os.path.lexists(path)):
        answers = _answers_to(open_ones, program)
        told = {FOLDER_OPTION if one.name == FOLDER_OPTION else RESUME for one in answers}
        open_ones = tuple(one for one in open_ones if one.option not in told)
    proposal = propose(start.launch, program, without_effect(start.launch, program), answers, open_ones)
    page = yaml_page(proposal, start.said)
    named = proposal.launch.program[0] if proposal.launch.program else ""
    here = program.script is not None and (proposal.launch.module or (start.places.root / named).is_file())
    refused = refusal_of(proposal, program, page, start.places.root) if here else ""
    change = launch_change(start, proposal)
    return _Adopted(start=start, proposal=proposal, page=page, path=path, refused=refused, change=change)


def _refuse_behind(words: Sequence[str], script: Path | None) -> None:
    """Refuse options of ours that were typed behind a command whose script does not name them. UsageError."""
    files = (Path(one) for one in (*words, script or "") if os.path.isfile(one))  # noqa: PTH113
    texts = [bytes_from(file, 0, _MOST_BYTES) for file in files]
    for word in sorted(_OWN_OPTIONS.intersection(words[1:])):
        if not any(word.encode() in text for text in texts):
            because = "there it would be an option of the script, which names none that is called so"
            hint = f"faultrun adopt {word} {words[0]} ...; or, if it is the script's, all in quotation marks"
            raise UsageError(f"{word} stands behind {words[0]}", because=because, hint=hint)


def _answers_to(questions: Sequence[Question], program: KnownProgram) -> tuple[AdoptedOption, ...]:
    """Ask each of ``questions``; what is left open has no answer here."""
    if questions:
        _say(_INTRODUCTION)
    found = (_answer(one, program) for one in questions)
    return tuple(one for one in found if one is not None)


def _answer(question: Question, program: KnownProgram) -> AdoptedOption | None:
    offer = f" [y: {question.offered}; {question.why}]" if question.offered else ""
    for _ in range(_TRIES):
        _say(f"{question.asks}{offer} ")
        text = sys.stdin.readline()
        if not text.endswith("\n"):
            _say("\n")  # the end of input, in the row of the question
        try:
            return answered(question, text, program)
        except UsageError as error:
            _say(f"{error.what}: {error.because}; try {error.hint}\n")
    return None


def _say(text: str) -> None:
    click.echo(text, err=True, nl=False)


def _written(path: Path | None, page: str, force: bool, *, writes: bool) -> str:
    """Write the file, unless another one is there; a word about what was done. UsageError, ConfigError."""
    if path is None:
        return ""
    shown = os.path.relpath(path)
    if (before := _before(path, shown)) == page:
        return "already so"
    if before is not None and not force:
        for line in difflib.unified_diff(before.splitlines(), page.splitlines(), shown, shown, lineterm=""):
            answer(line)
        because, hint = "it is there, and holds something else", "compare it above; --force writes over it"
        raise UsageError(f"{shown} is left as it is", because=because, hint=hint)
    if not writes:
        return _NOT_WRITTEN
    try:
        replace_durably(path, page.encode())
    except OSError as error:
        because, hint = error.strerror or str(error), f"ls -ld {path.parent}"
        raise ConfigError(f"{shown} could not be written", because=because, hint=hint) from error
    return "written" if before is None else "written over the one before"


def _before(path: Path, shown: str) -> str | None:
    if not os.path.lexists(path):
        return None
    if not path.is_file():
        because, hint = "it is no regular file", "move it away"
        raise ConfigError(f"{shown} could not be written", because=because, hint=hint)
    return path.read_text(encoding="utf-8", errors="replace")


def _tell(done: _Adopted, written: str, tell: Callable[[str], None]) -> None:
    if done.path is not None:
        rows = [
            row for row in done.page.splitlines()[_HEAD_LINES:] if row and not row.startswith("# left open")
        ]
        _section(tell, f"{os.path.relpath(done.path)}  ({written})", rows, first=True)
    start, line = done.start, _line(done, done.words)
    if start.container is not None:
        container = start.container
        title = f"instead of the command in {start.said} ({container.name}):"
        entered = start.command.folder if start.command is not None else ""
        _section(tell, title, list(command_lines(_in_container(done), entered)), first=done.path is None)
        _section(tell, "then:", [f"faultrun lint {start.file}", "faultrun render --list   (whole manifests)"])
    elif start.command is not None and start.command.file and done.path is not None:
        where = f"{start.command.file}:{start.command.line}"
        old = " ".join(start.command.text.split())
        _section(tell, f"instead of {where}  {old}", [written_line(start, done.proposal)])
    elif loop := typed_loop(start, done.proposal):
        _section(tell, "from now on:", loop.splitlines(), first=done.path is None)
    else:
        _section(tell, "from now on:", [line], first=done.path is None)
        _section(tell, "to see it recover:", [_line(done, ("faultrun", "rehearse", *done.words[1:]))])
    _section(tell, "left open:", done.missing)
    _section(tell, "no effect here:", [str(one) for one in done.proposal.launch.no_effect])
    _section(tell, "good to know:", done.notes)


def _line(done: _Adopted, words: Sequence[str]) -> str:
    """The command as it is typed where the old one was: behind its ``cd``."""
    command = done.start.command
    folder = command.folder if command is not None and not command.file else ""
    entered = f"cd {quoted(folder)} && " if folder not in ("", ".") else ""
    return f"{entered}{done.proposal.lined(words)}"


def _in_container(done: _Adopted) -> tuple[str, ...]:
    """PID 1 is faultrun itself, behind ``exec`` where a shell has to fill words in; variables by ``env``."""
    if any("$" in word for word in done.words):
        return ("sh", "-c", f"exec {done.proposal.lined(done.words)}")
    variables = tuple(f"{name}={value}" for name, value in done.proposal.launch.environment)
    return (*(("env", *variables) if variables else ()), *done.proposal.launch.before, *done.words)


def _section(tell: Callable[[str], None], title: str, lines: Sequence[str], *, first: bool = False) -> None:
    if lines or first:
        tell(f"{'' if first else chr(10)}{title}")
        for line in lines:
            tell(f"  {line}")


def _object(done: _Adopted, written: str, changes: Sequence[FileChange]) -> dict[str, object]:
    launch, proposal = done.proposal.launch, done.proposal
    in_container = done.start.container is not None
    return {
        "launcher": launch.launcher,
        "command": list(_in_container(done) if in_container else done.words),
        "command_line": proposal.lined(done.words) if in_container else _line(done, done.words),
        "environment": dict(launch.environment),
        "config": str(done.path) if done.path is not None else None,
        "written": written.startswith("written"),
        "options": {one.name: list(one.values) for one in proposal.options},
        "read": {one.name: one.read for one in proposal.options},
        "missing": done.missing,
        "no_effect": [str(one) for one in launch.no_effect],
        "notes": done.notes,
        "diff": unified(changes),
    }
