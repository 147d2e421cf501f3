"""What faultrun is given instead of a launcher: options, the line each was read from, and what is missing.

Decides from values alone; nothing is read or written here.
"""

import ast
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from faultrun.adopt.launch import AdoptedOption, FoundLaunch, Remark
from faultrun.adopt.program import KnownProgram, RecipeFit
from faultrun.adopt.questions import FOLDER_OPTION, HANDS_OVER, Question
from faultrun.adopt.script_source import ScriptSource
from faultrun.adopt.several_nodes import PER_NODE
from faultrun.model.spec.run_spec import Framework

_COUNTS = frozenset({"worker_num", "nproc_per_node", "local_worker_num"})
_LISTS = frozenset({"checkpoint_dir", "resume_arg", "rewrite"})
_PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./-]*")
_SAFE_IN_SHELL = re.compile(r"[\w./:=,+@%{}\[\]$-]+")
_NUMBER = re.compile(r"0|[1-9]\d*|\d+\.\d*[1-9]")
_NO_TEXT = frozenset({"null", "true", "false", "yes", "no", "on", "off", ".inf", ".nan", "y", "n"})
_WIDEST = 40
_TO_FILL_IN = "# Open, because a script does not tell it: put in what is so, and take the first # away."
_COUNTED_BY_OTHERS = {
    "mpi4py": "it meets by mpi4py, for which each worker is alone: faultrun sets RANK and WORLD_SIZE"
}
_FOREIGN = {
    **dict.fromkeys(("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"), "MPI"),
    **dict.fromkeys(("PMI_RANK", "PMI_SIZE"), "MPI"),
    **dict.fromkeys(
        ("PMIX_RANK", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"), "MPI"
    ),
    **dict.fromkeys(("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"), "Slurm"),
}
_OURS = frozenset({"RANK", "LOCAL_RANK", "RANK_ID"})
_INSTEAD = "faultrun sets RANK, LOCAL_RANK and WORLD_SIZE"
_SPAWNS = ("torch.multiprocessing.spawn", "torch_npu.multiprocessing.spawn")
_LIGHTNING = ("lightning.", "pytorch_lightning.", "lightning_fabric.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The options of ``faultrun.yaml``, and the command. ``missing`` is what could not be told.

    ``typed`` are options that stay on the command line, because a shell fills them in. ``questions`` are
    open; ``left_out`` are answers that are of no use before the others are there.
    """

    launch: FoundLaunch
    options: tuple[AdoptedOption, ...]
    typed: tuple[AdoptedOption, ...] = ()
    missing: tuple[Remark, ...] = ()
    notes: tuple[str, ...] = ()
    questions: tuple[Question, ...] = ()
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


def propose(
    launch: FoundLaunch,
    program: KnownProgram,
    no_effect: Mapping[str, str],
    answers: Sequence[AdoptedOption] = (),
    questions: Sequence[Question] = (),
) -> Proposal:
    """Put together what was found and answered; ``questions`` are those that stay open.

    ``no_effect`` says of options by name why they would do nothing here.
    """
    kept = list({one.name: one for one in launch.options if one.name not in no_effect}.values())
    options = (one for one in launch.options if one.name in no_effect)
    dropped = tuple(Remark(what=one.read, why=no_effect[one.name]) for one in options)
    source = program.source if launch.launcher == "python" else None
    devices = _devices_of(source) if source is not None else None
    counted = any(one.name in _COUNTS for one in kept)
    if devices is not None and not counted:
        kept = [devices, *kept]
    elif (
        source is not None and program.ranked and not counted and program.framework is not Framework.MINDSPORE
    ):
        read = f"python sets no RANK, and {program.ranked} asks for it; not for several workers"
        kept.append(AdoptedOption(name="rank_env", values=("none",), read=read))
    every = [*kept, *_of_recipe(program, {one.name for one in kept}), *answers]
    useless = [one for one in answers if one.name in HANDS_OVER and not _names_folder(every)]
    every = [one for one in every if one not in useless]
    environment, no_effects = tuple(dict(launch.environment).items()), (*launch.no_effect, *dropped)
    launched = replace(launch, environment=environment, no_effect=no_effects)
    return Proposal(
        launch=launched,
        options=tuple(one for one in every if not one.open and one.name not in PER_NODE),
        typed=tuple(one for one in every if one.open or one.name in PER_NODE),
        missing=(*_missing(program), *launch.doubts),
        notes=(*_of_nodes(launched), *_notes(program)),
        questions=tuple(questions),
        left_out=tuple(useless),
    )


def _names_folder(options: Sequence[AdoptedOption]) -> bool:
    return any(one.name in (FOLDER_OPTION, "recipe") for one in options)


def _of_recipe(program: KnownProgram, given: set[str]) -> list[AdoptedOption]:
    """The recipe; of a script that asks faultrun where to resume only the folder that the recipe tells."""
    if (fit := program.recipe) is None or "recipe" in given:
        return []
    if not program.asks:
        return [AdoptedOption(name="recipe", values=(fit.name,), read=_told_by(fit))]
    if not fit.folders or FOLDER_OPTION in given:
        return []
    return [AdoptedOption(name=FOLDER_OPTION, values=fit.folders, read=fit.why)]


def _told_by(fit: RecipeFit) -> str:
    parts = [fit.why]
    parts += [f"checkpoints in {' '.join(fit.folders)}"] if fit.folders else []
    parts += [f"a restart sets {' '.join(fit.rewrites)}"] if fit.rewrites else []
    parts += [f"a restart passes {' '.join(fit.arguments)}"] if fit.arguments else []
    parts += [f"corrects {' '.join(fit.pointers)}"] if fit.pointers else []
    return "; ".join(parts)


def _missing(program: KnownProgram) -> list[Remark]:
    if program.script is None:
        why = "neither its imports nor its options could be read"
        return [Remark(what=f"{program.shown or 'a script'} is not here", why=why)]
    missing = [Remark(what="not parsed", why=program.unread)] if program.unread else []
    if program.source is not None:
        missing += _unmet(program.source)
    for package, why in _COUNTED_BY_OTHERS.items():
        if any(name.partition(".")[0] == package for name in program.imported):
            missing.append(Remark(what=program.shown, why=why))
    if program.recipe is not None and program.recipe.doubt:
        what = f"the recipe {program.recipe.name} lacks something"
        missing.append(Remark(what=what, why=program.recipe.doubt))
    return missing


def _unmet(source: ScriptSource) -> Iterator[Remark]:
    """What the script would miss, each with its line."""
    texts = source.texts
    foreign = [name for name in texts if name in _FOREIGN]
    if foreign and not _OURS.intersection(texts):
        name = foreign[0]
        why = f"{_FOREIGN[name]} does not start the workers: {_INSTEAD}"
        yield Remark(what=f"{texts[name]} reads {name}", why=why)
    if (option := source.option("local_rank")) is not None and "LOCAL_RANK" not in texts:
        why = f"faultrun passes no such argument: {_INSTEAD}"
        yield Remark(what=f"{option.where} takes {option.spelled}", why=why)
    for call in source.calls:
        if source.dotted(call.func) in _SPAWNS:
            why = f"each worker would start them again: {_INSTEAD}, from which a function can take its rank"
            yield Remark(what=f"{source.where(call)} starts processes of its own", why=why)


def _devices_of(source: ScriptSource) -> AdoptedOption | None:
    """How many workers a Lightning Trainer or Fabric starts by itself where no launcher does."""
    for call in source.calls:
        if not source.dotted(call.func).startswith(_LIGHTNING):
            continue
        for one in call.keywords:
            match one:
                case ast.keyword(arg="devices", value=ast.Constant(value=int(count))) if count > 1:
                    read = f"{source.where(one.value)} devices={count}"
                    return AdoptedOption(name="worker_num", values=(str(count),), read=read)
    return None


def _of_nodes(launch: FoundLaunch) -> list[str]:
    """What a person does on the other nodes."""
    if not launch.over_nodes:
        return []
    ranked = any(one.name == "node_rank" and not one.open for one in launch.options)
    own = ", with a --node_rank of its own" if ranked else ""
    notes = [f"the same line starts every node{own}; one node more than --nnodes is a spare"]
    if not _names_folder(launch.options):
        notes.append("best with checkpoints in a folder that all nodes share: then any save serves all")
    return notes


def _notes(program: KnownProgram) -> list[str]:
    if not program.asks:
        return []
    return [f"{program.shown} names FAULTRUN_RESUME_FROM or calls the SDK's resume: that is not asked"]


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
    lines = [f"{row.ljust(_width(rows))}  # {_one_line(read)}" for row, read in rows]
    lost = [f"# left open: {_one_line(str(one))}" for one in proposal.missing]
    parts = [head, lines, list(_open(proposal)), lost]
    return "\n".join("".join(f"{line}\n" for line in part) for part in parts if part)


def _open(proposal: Proposal) -> Iterator[str]:
    """Lines that a person is to fill in, as comments."""
    asked = ((one.option, yaml_value([one.sample], one.option), one.hint) for one in proposal.questions)
    rows = [(f"# {option}: {value}", hint) for option, value, hint in asked]
    rows += [
        (f"# {one.name}: {yaml_value(one.values, one.name)}", f"{one.read}; alone it resumes nothing")
        for one in proposal.left_out
    ]
    if rows:
        yield _TO_FILL_IN
    for row, hint in rows:
        yield f"{row.ljust(_width(rows))}  # {_one_line(hint)}"


def _width(rows: Sequence[tuple[str, str]]) -> int:
    return max((len(row) for row, _ in rows if len(row) <= _WIDEST), default=0)


def _one_line(text: str) -> str:
    return "".join(one if one.isprintable() else "?" for one in " ".join(text.split()))
