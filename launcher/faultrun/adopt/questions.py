"""What a person is asked: where the training saves, and how the script is told what to load.

A script's source does not tell this for sure, so nothing is taken from it. Names and defaults of the options
that the script declares make an answer that is offered, and what is not answered stays open.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from faultrun.adopt.launch import AdoptedOption, FoundLaunch, needs_shell
from faultrun.adopt.program import KnownProgram
from faultrun.adopt.script_source import ScriptOption
from faultrun.configs.recipes.fill import argument_value
from faultrun.core import template
from faultrun.errors import ConfigError, UsageError

FOLDER_OPTION, RESUME = "checkpoint_dir", "resume_arg"
HANDS_OVER = frozenset({RESUME, "rewrite", "recipe"})

_YES, _NO = frozenset({"y", "yes"}), frozenset({"n", "no", "none"})
_FOLDER_RANKS = ("checkpoint", "ckpt", "snapshot", "save", "out", "work", "exp", "run")
_PLACES = frozenset({"dir", "directory", "folder", "root", "path", "to"})
_FOLDER_NAME = re.compile(r"(?i)(out|output|save|ckpts?|checkpoints?)(_?(dir|directory|folder|path|to))?")
_NOT_SAVED_IN = re.compile(
    r"(?i)(load|resume|restore|init|pre_?train|data|input|cache|log|tensorboard|every|freq|interval|steps?$"
    r"|epochs?$|from|token|name|format|strategy|best|only|^(ckpt|checkpoint|snapshot)s?_?path$)"
)
_SAVED_IN = re.compile(r"(?i)(checkpoint|ckpt|snapshot|save|out|work|exp|run)")
_FILES = frozenset({".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".tar", ".npz"})
_LOADED_BY = re.compile(
    r"(?i)(^|_)(resume|restore|recover|ckpt|checkpoint|load|pre_?trained|init_from|start_from|snapshot|continue)"
)
_NOT_LOADED_BY = re.compile(
    r"(?i)(save|out|dir$|dirs$|folder$|every|freq|interval|steps?$|epochs?$|num|max|keep|limit|iter|period|total"
    r"|workers?|url|strategy|format|prefix|dataset|data|precision|only|best|activation|gradient|use_|file_name)"
)
_RESUME_RANKS = (
    *("resume", "recover", "restore", "ckpt_path", "checkpoint", "ckpt", "snapshot", "load", "continue"),
    *("init", "start", "pre"),
)
_STEPS = re.compile(r"step|iter")
_SWITCHES = frozenset({"bool", "str2bool", "strtobool", "boolean", "int"})
_KEY_OF_FILE = re.compile(r"\S+\.(ya?ml|json|toml|ini|cfg|env|sh|py):\S+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question about ``option``. ``offered`` is a possible answer and ``why`` what it was read from.

    ``offered`` is "" where nothing is at hand. ``put_in`` says what belongs into a file.
    """

    option: str
    asks: str
    put_in: str
    offered: str = ""
    why: str = ""

    @property
    def sample(self) -> str:
        """A value for a file: the one that is offered, else a word for one."""
        if self.offered and not needs_shell(self.offered):
            return self.offered
        return "DIR" if self.option == FOLDER_OPTION else "--OPTION={checkpoint}"

    @property
    def hint(self) -> str:
        """What is to be put into a file."""
        if self.option == RESUME:
            return f"{self.put_in}; perhaps {self.why}" if self.why else self.put_in
        typed = f": --{FOLDER_OPTION}={self.offered} on the command line" if needs_shell(self.offered) else ""
        return f"{self.put_in}; {self.why}{typed}" if self.why else self.put_in


def questions(launch: FoundLaunch, program: KnownProgram) -> tuple[Question, ...]:
    """What neither the command nor a recipe tells."""
    given = {one.name for one in launch.options}
    shown, fit = program.shown or "the script", program.recipe
    found: list[Question] = []
    if FOLDER_OPTION not in given and (fit is None or not fit.folders):
        asks = f"where does {shown} save its checkpoints?"
        put_in = f"the folder into which {shown} saves"
        put_in += ", if the recipe does not find it" if fit is not None and not program.asks else ""
        found.append(_offering(_folder(launch, program), FOLDER_OPTION, asks, put_in))
    if not program.asks and not HANDS_OVER & given and (fit is None or not fit.hands_over):
        asks = f"how is {shown} told which checkpoint to load?"
        found.append(_offering(loaded_by(program), RESUME, asks, f"how {shown} is told what to load"))
    return tuple(found)


def loaded_by(program: KnownProgram) -> AdoptedOption | None:
    """The option of the script that sounds most like it, as an answer; it may be another one."""
    found = [
        one
        for one in program.options
        if _LOADED_BY.search(one.name)
        and (_NOT_LOADED_BY.search(one.name) is None or one.name.startswith("resume_from"))
        and (one.kind != "int" or _counted(one) or one.name.startswith("is_"))
    ]
    if not found:
        return None
    best = min(found, key=lambda one: _rank(one.name, _RESUME_RANKS))
    value = best.spelled + (f"={_template(best)}" if _template(best) else "")
    return AdoptedOption(name=RESUME, values=(value,), read=f"{best.spelled} ({best.where})")


def answered(question: Question, text: str, program: KnownProgram) -> AdoptedOption | None:
    """The option that an answer means; None for an empty one and a no. UsageError: it can be no answer."""
    if not (text := text.strip()) or text.lower() in _NO:
        return None
    if text.lower() in _YES and not question.offered:
        because, hint = "nothing is offered", f"{question.put_in}, or Enter to leave it open"
        raise UsageError(f"{text} says too little", because=because, hint=hint)
    if text.lower() in _YES:
        read = f"as told; {question.why}"
        return AdoptedOption(name=question.option, values=(question.offered,), read=read)
    if question.option == FOLDER_OPTION:
        return AdoptedOption(name=FOLDER_OPTION, values=(text,), read="as told")
    name = "rewrite" if _KEY_OF_FILE.fullmatch(text) else RESUME
    text = "=".join(text.split(maxsplit=1)) if text.startswith("-") else text
    declared = next((one for one in program.options if text in (one.spelled, *one.also)), None)
    if declared is not None and _template(declared):
        text = f"{text}={_template(declared)}"
    if name == RESUME and not text.startswith("-") and "=" not in text:
        because, hint = "it is no option of a script", question.offered or "--resume={checkpoint}"
        raise UsageError(f"{text} cannot be used", because=because, hint=hint)
    try:
        template.parse(text)
    except ConfigError as error:
        raise UsageError(f"{text} cannot be used", because=error.because, hint=error.hint) from None
    return AdoptedOption(name=name, values=(text,), read="as told")


def _offering(offered: AdoptedOption | None, option: str, asks: str, put_in: str) -> Question:
    if offered is None:
        return Question(option=option, asks=asks, put_in=put_in)
    return Question(option=option, asks=asks, put_in=put_in, offered=offered.values[0], why=offered.read)


def _folder(launch: FoundLaunch, program: KnownProgram) -> AdoptedOption | None:
    """The value of the option that sounds most like the folder of checkpoints: as typed, else its default."""
    named = sorted(filter(_names_folder, program.options), key=lambda one: _rank(one.name, _FOLDER_RANKS))
    return next(filter(None, (_value(launch.program[1:], one) for one in named)), None)


def _names_folder(option: ScriptOption) -> bool:
    name = option.name
    if option.flag or isinstance(option.default, bool | int | float) or _NOT_SAVED_IN.search(name):
        return False
    placed = bool(_SAVED_IN.search(name)) and not _PLACES.isdisjoint(name.lower().split("_"))
    return placed or _FOLDER_NAME.fullmatch(name) is not None


def _value(args: Sequence[str], option: ScriptOption) -> AdoptedOption | None:
    """The folder that an option names, and what it was read from; None if unknown.

    Where the option may have been typed in another way, shortened or without a space, no default counts.
    """
    spellings, which = (option.spelled, *option.also), f"{option.spelled} ({option.where})"
    typed = (argument_value(args, word.lstrip("-")) for word in spellings)
    value = next((one for one in typed if one is not None), None)
    read = f"{which} is {value}"
    if value is None and not any(_may_be(word, spellings) for word in args):
        value = option.default if isinstance(option.default, str) else None
        read = f"the default of {which}"
    if not value:
        return None
    path = PurePosixPath(value)
    folder = str(path.parent) if path.suffix in _FILES else value
    return AdoptedOption(name=FOLDER_OPTION, values=(folder,), read=read)


def _may_be(word: str, spellings: Sequence[str]) -> bool:
    """Whether argparse may take ``word`` for the option: a beginning of it, or ``-oVALUE``."""
    head = word.partition("=")[0]
    return any(
        one.startswith(head) if head.startswith("--") else not one.startswith("--") and word.startswith(one)
        for one in spellings
    )


def _template(option: ScriptOption) -> str:
    """What follows the option; "" for one that takes no value."""
    if option.flag:
        return ""
    if option.kind == "int" and _counted(option):
        return _counted(option)
    if option.kind in _SWITCHES or isinstance(option.default, bool):
        return "1" if option.kind == "int" else "true"
    return "{checkpoint}"


def _counted(option: ScriptOption) -> str:
    """The field that a number is; "" for one that may as well be a switch."""
    return "{epoch}" if "epoch" in option.name else "{global_step}" if _STEPS.search(option.name) else ""


def _rank(name: str, ranks: tuple[str, ...]) -> int:
    return next((at for at, part in enumerate(ranks) if part in name.lower()), len(ranks))
