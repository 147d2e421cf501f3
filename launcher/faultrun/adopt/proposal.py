"""What faultrun is given instead of a launcher: options, the line each was read from, and what is missing.

Decides from values alone; nothing is read or written here.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from faultrun.adopt.launch import AdoptedOption, FoundLaunch, Remark
from faultrun.adopt.launcher_expectations import devices_of, unmet
from faultrun.adopt.program import KnownProgram, RecipeFit
from faultrun.adopt.several_nodes import PER_NODE
from faultrun.adopt.source.hand_over import HandOver
from faultrun.adopt.source.traced import OriginKind
from faultrun.adopt.source.training import Training, TypedFolder

_COUNTS = frozenset({"worker_num", "nproc_per_node", "local_worker_num"})
_LISTS = frozenset({"checkpoint_dir", "resume_arg", "rewrite"})
_PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./-]*")
_SAFE_IN_SHELL = re.compile(r"[\w./:=,+@%{}\[\]$-]+")
_NUMBER = re.compile(r"0|[1-9]\d*|\d+\.\d*[1-9]")
_NO_TEXT = frozenset({"null", "true", "false", "yes", "no", "on", "off", ".inf", ".nan", "y", "n"})
_COUNTED_BY_OTHERS = {
    "mpi4py": "it meets by mpi4py, for which each worker is alone: faultrun sets RANK and WORLD_SIZE",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The options of ``faultrun.yaml``, and the command. ``missing`` is what nobody could tell.

    ``typed`` are options that stay on the command line, because a shell fills them in.
    """

    launch: FoundLaunch
    options: tuple[AdoptedOption, ...]
    typed: tuple[AdoptedOption, ...] = ()
    missing: tuple[Remark, ...] = ()
    notes: tuple[str, ...] = ()
    left_out: tuple[AdoptedOption, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """The command, without what stands before it."""
        module = ("-m",) if self.launch.module else ()
        return ("faultrun", *_typed(self.typed), *module, *self.launch.program)

    @property
    def whole_words(self) -> tuple[str, ...]:
        """The command with every option on it, for where no file of ours is read."""
        module = ("-m",) if self.launch.module else ()
        return ("faultrun", *_typed((*self.options, *self.typed)), *module, *self.launch.program)

    @property
    def line(self) -> str:
        """The command as a person types it, variables before it."""
        return self.lined(self.words)

    def lined(self, words: Sequence[str]) -> str:
        """``words`` with the variables and what stands before them."""
        variables = (f"{name}={quoted(value)}" for name, value in self.launch.environment)
        return " ".join([*variables, *map(quoted, self.launch.before), *map(quoted, words)])


def propose(launch: FoundLaunch, program: KnownProgram, no_effect: Mapping[str, str]) -> Proposal:
    """Put together what was found. ``no_effect`` says of options by name why they would do nothing here."""
    training = program.training
    kept = _last_of_each([one for one in launch.options if one.name not in no_effect])
    dropped = tuple(
        Remark(what=one.read, why=no_effect[one.name]) for one in launch.options if one.name in no_effect
    )
    devices = devices_of(program.code) if launch.launcher == "python" else None
    if devices is not None and not any(one.name in _COUNTS for one in kept):
        kept = [devices, *kept]
    resume, left_out = _resume(program)
    missing = [*_missing(program), *launch.doubts]
    launched = FoundLaunch(
        launcher=launch.launcher,
        program=launch.program,
        module=launch.module,
        options=launch.options,
        environment=tuple(dict(launch.environment).items()),
        before=launch.before,
        no_effect=(*launch.no_effect, *dropped),
        doubts=launch.doubts,
    )
    every = [*kept, *resume]
    return Proposal(
        launch=launched,
        options=tuple(one for one in every if not one.open and one.name not in PER_NODE),
        typed=tuple(one for one in every if one.open or one.name in PER_NODE),
        missing=tuple(missing),
        notes=(*_of_nodes(launched), *_notes(program, training)),
        left_out=tuple(left_out),
    )


def _last_of_each(options: Sequence[AdoptedOption]) -> list[AdoptedOption]:
    return list({one.name: one for one in options}.values())


def _resume(program: KnownProgram) -> tuple[list[AdoptedOption], list[AdoptedOption]]:
    """The options of where to resume; and those that would need a folder that nobody knows."""
    training, fit = program.training, program.recipe
    folders = [
        AdoptedOption(name="checkpoint_dir", values=(one.folder,), read=one.where) for one in training.saves
    ]
    folders += [
        AdoptedOption(name="checkpoint_dir", values=(one.folder,), read=f"{one.option} of the command")
        for one in training.typed
    ]
    known = all(one.named for one in training.typed)
    together = _together(folders) if known else []  # the others alone would be taken for all of them
    if fit is not None and (fit.marked or not training.asks):
        recipe = AdoptedOption(name="recipe", values=(fit.name,), read=_told_by(fit))
        if not fit.doubts and fit.folders:
            return [recipe], []
        return [recipe, *together], []
    if training.asks:
        if not together and known and fit is not None and fit.folders:
            together = [AdoptedOption(name="checkpoint_dir", values=fit.folders, read=fit.why)]
        return together, []
    handed = _handed(training.hand_over) if training.hand_over is not None else []
    if together and (handed or training.own):
        return [*together, *handed], []
    return [], [*together, *handed]  # one without the other is of no use: a restart begins at the start


def _together(folders: Sequence[AdoptedOption]) -> list[AdoptedOption]:
    """One option for all folders, but for those inside of another one."""
    names = [one.values[0].rstrip("/") or "/" for one in folders]
    outer = [
        one
        for one, name in zip(folders, names, strict=True)
        if not any(
            name != other and f"{_plain_path(name)}/".startswith(f"{_plain_path(other)}/") for other in names
        )
    ]
    if not outer:
        return []
    read = ", ".join(dict.fromkeys(one.read for one in outer))
    return [
        AdoptedOption(
            name="checkpoint_dir", values=tuple(dict.fromkeys(one.values[0] for one in outer)), read=read
        )
    ]


def _plain_path(path: str) -> str:
    return path.removeprefix("./")


def _handed(hand_over: HandOver) -> list[AdoptedOption]:
    if hand_over.spelled:
        joint = "=" if hand_over.template else ""
        value = f"{hand_over.spelled}{joint}{hand_over.template}"
        return [AdoptedOption(name="resume_arg", values=(value,), read=hand_over.where)]
    value = f"{hand_over.origin.file}:{hand_over.origin.name}"
    value += "" if hand_over.template == "{checkpoint}" else f"={hand_over.template}"
    return [AdoptedOption(name="rewrite", values=(value,), read=hand_over.where)]


def _told_by(fit: RecipeFit) -> str:
    parts = [fit.why]
    parts += [f"checkpoints in {' '.join(fit.folders)}"] if fit.folders else []
    parts += [f"a restart sets {' '.join(fit.rewrites)}"] if fit.rewrites else []
    parts += [f"a restart passes {' '.join(fit.arguments)}"] if fit.arguments else []
    parts += [f"corrects {' '.join(fit.pointers)}"] if fit.pointers else []
    return "; ".join(parts)


def _missing(program: KnownProgram) -> list[Remark]:
    training, fit = program.training, program.recipe
    if program.script is None:
        shown = program.shown or "a script"
        return [
            Remark(what=f"{shown} is not here", why="where it saves and how it resumes could not be read")
        ]
    if program.script.suffix != ".py":
        return [
            Remark(
                what=f"{program.shown} is no Python",
                why="where it saves and how it resumes could not be read",
            )
        ]
    missing = [Remark(what="not parsed", why=one) for one in program.code.unread]
    missing += unmet(program.code)
    for package, why in _COUNTED_BY_OTHERS.items():
        if any(name.partition(".")[0] == package for name in program.imported):
            missing.append(Remark(what=program.shown, why=why))
    by_recipe = fit is not None and (fit.marked or not training.asks)
    if by_recipe and fit is not None:
        if fit.doubts and not training.saves:
            missing += [Remark(what="no checkpoint folder found", why=one) for one in fit.doubts]
        if not fit.hands_over and not fit.doubts:
            why = "it has no option for that; `faultrun adopt --diff` shows the line that does it"
            missing.append(Remark(what=f"nothing tells {program.shown} where to resume", why=why))
        return missing
    missing += [_only_the_shell(one) for one in training.typed]
    if not training.saves and not training.typed:
        missing += [Remark(what="no checkpoint folder found", why=str(one)) for one in training.missing] or [
            Remark(
                what="no checkpoint folder found", why=f"{program.shown} calls nothing that is known to save"
            )
        ]
    return missing + _no_hand_over(program.shown, training)


def _only_the_shell(one: TypedFolder) -> Remark:
    """That a folder was typed that no file can hold, and what to do about it."""
    why = "only the shell knows; "
    if one.folder and one.named:
        why += f"--checkpoint_dir={one.folder} stands on the command line"
    else:
        why += f"give --checkpoint_dir={one.folder or 'DIR, the folder that comes of it'}"
    return Remark(what=f"{one.option} is {one.typed}", why=why)


def _no_hand_over(shown: str, training: Training) -> list[Remark]:
    if training.asks or training.hand_over is not None or training.own:
        return []
    if training.condition is not None:
        return [training.condition]
    what = f"nothing tells {shown} where to resume"
    if training.loads:
        return [Remark(what=what, why=f"no option or configuration leads to what {training.loads[0]} loads")]
    return [Remark(what=what, why="it loads no checkpoint: a restart begins at the start")]


def _of_nodes(launch: FoundLaunch) -> list[str]:
    """What a person does on the other nodes."""
    if not launch.over_nodes:
        return []
    ranked = any(one.name == "node_rank" and not one.open for one in launch.options)
    own = ", with a --node_rank of its own" if ranked else ""
    notes = [f"the same line starts every node{own}; one node more than --nnodes is a spare"]
    if not any(one.name in ("checkpoint_dir", "recipe") for one in launch.options):
        notes.append("best with checkpoints in a folder that all nodes share: then any save serves all")
    return notes


def _notes(program: KnownProgram, training: Training) -> list[str]:
    notes: list[str] = []
    if training.asks:
        notes.append(f"{program.shown} asks faultrun where to resume (its SDK, or FAULTRUN_RESUME_FROM)")
    if training.own:
        notes.append(f"{program.shown} finds its checkpoint by itself: {training.own}")
    hand_over = training.hand_over
    if hand_over is not None and hand_over.template == "" and not training.asks and program.recipe is None:
        notes.append(f"{hand_over.spelled} takes no path: the script chooses the checkpoint itself")
    if training.others and not training.asks and program.recipe is None:
        seen = ", ".join(
            f"{one.spelled or f'{one.origin.file}:{one.origin.name}'} ({one.origin.where})"
            for one in training.others
            if one.origin.kind is not OriginKind.VARIABLE
        )
        notes.append(f"not used to resume: {seen}")
    return notes


def _typed(options: Sequence[AdoptedOption]) -> list[str]:
    """Options as words."""
    words: list[str] = []
    for one in options:
        for value in one.values:
            switched = value.lower() == "true" and one.name not in _LISTS
            words.append(f"--{one.name}" if switched else f"--{one.name}={value}")
    return words


def quoted(word: str) -> str:
    """A word for a shell; one that a shell has to fill in stays open to it."""
    if ("$" in word or "`" in word) and "'" not in word:
        return word if _SAFE_IN_SHELL.fullmatch(word) else f'"{word}"'
    return shlex.quote(word)


def yaml_value(values: Sequence[str], name: str) -> str:
    """How YAML writes the values of an option, so that each stays the text that it is."""
    if name not in _LISTS:
        (value,) = values[-1:]
        if _NUMBER.fullmatch(value) or value.lower() in ("true", "false"):
            return value.lower()
        return _scalar(value)
    texts = [_scalar(value) for value in values]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _scalar(value: str) -> str:
    plain = _PLAIN.fullmatch(value) and value.lower() not in _NO_TEXT
    if plain and ("/" in value or not value.lstrip(".")[:1].isdecimal()):
        return value
    return f'"{"".join(map(_escaped, value))}"'


def _escaped(character: str) -> str:
    """A character between the double quotes of YAML 1.1 (5.7), where a line break itself would be a space."""
    if character in '\\"':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08x}"


def yaml_page(proposal: Proposal, found_in: str) -> str:
    """The text of ``faultrun.yaml``."""
    head = [
        f"# Options of faultrun for this training, by `faultrun adopt` from: {_one_line(found_in)}",
        f"# Used by: {_one_line(proposal.line)}",
        "# What is typed wins; --config=none leaves this file out. Paths are those of where faultrun starts.",
    ]
    rows = [(f"{one.name}: {yaml_value(one.values, one.name)}", one.read) for one in proposal.options]
    rows += [
        (
            f"# {one.name}: {yaml_value(one.values, one.name)}",
            f"{one.read}; alone it resumes nothing",
        )
        for one in proposal.left_out
    ]
    width = max((len(row) for row, _ in rows if len(row) <= 40), default=0)
    body = [f"{row.ljust(width)}  # {_one_line(read)}" for row, read in rows]
    lost = [f"# not found: {_one_line(str(one))}" for one in proposal.missing]
    return "\n".join([*head, "", *body, *([""] if lost else []), *lost]) + "\n"


def _one_line(text: str) -> str:
    return "".join(one if one.isprintable() else "?" for one in " ".join(text.split()))
