"""SCRIPT and its arguments: what a worker executes, which file says so, and what framework it needs."""

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from faultrun.cli.options.choices import likely
from faultrun.cli.options.option import Takes
from faultrun.cli.options.settings import OPTIONS, Settings
from faultrun.cli.resolve.context import ProcessContext, ResolveContext
from faultrun.cli.resolve.launchers import other_launcher
from faultrun.cli.verbs import VERBS
from faultrun.core.redact import without_secret_words
from faultrun.errors import UsageError
from faultrun.files import on_path
from faultrun.model.spec.run_spec import Command, Framework

if TYPE_CHECKING:
    from faultrun.model.recipe import Recipe

_NO_SCRIPTS_OWN = frozenset(
    {
        *("worker_num", "local_worker_num", "nproc_per_node", "nnodes", "max_restarts", "monitor_interval"),
        *("rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf", "standalone", "no_python"),
        *("tail_worker_log", "resume_arg", "hang_timeout", "local_ranks_filter"),
    }
)
_MSRUN_ONLY = (Settings.cluster_time_out, Settings.sim_level, Settings.sim_rank_id, Settings.ms_scheduler)
"""Only MindSpore's workers make use of these."""

_PYTHON = r"python(\d(\.\d+)?)?"
_PYTHON_ENDING = r"-[bBdEiIOPqsSuvx]*([mc])(.*)"
_PYTHON_VALUED = frozenset({"-W", "-X", "--check-hash-based-pycs"})
_SAYS_AND_ENDS = frozenset({"-V", "-VV", "--version", "-h", "-?", "--help"})
_SHELL = r"bash|sh|dash|zsh"
_SHELL_ENDING = r"-[a-zA-Z]*(c)()"
_SHELL_VALUED = frozenset({"-o", "+o", "-O", "+O", "--rcfile", "--init-file"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The command of every worker. ``source`` is its Python file, if it has one that we can see.

    ``search`` are the folders from which that file imports its neighbours.
    """

    command: Command
    source: Path | None = None
    search: tuple[Path, ...] = ()


def misplaced(settings: Settings, program: Program) -> str:
    """A word about an option of ours behind SCRIPT that the script does not have; "" without one.

    By the script's source, as far as it can be seen: it has what it spells anywhere. Where options may come
    from elsewhere, only names are pointed out that no script is likely to have.
    """
    from faultrun.frameworks.program_files import options_unknown_to, program_sources

    behind: dict[str, str] = {}
    for word in settings.words[1:]:
        if word == "--":
            break
        name = word.partition("=")[0].lstrip("-").replace("-", "_")
        if word.startswith("--") and name in OPTIONS and name not in settings.given:
            behind.setdefault(name, word)
    if not behind:
        return ""
    words = (*program.command.prefix, *program.command.script_args)
    sources = program_sources(words, program.source, program.search)
    if not (unknown := options_unknown_to(sources, list(behind), surely=_NO_SCRIPTS_OWN)):
        return ""
    word, known, script = behind[unknown[0]], OPTIONS[unknown[0]], settings.words[0]
    ours = word if "=" in word or known.takes is Takes.NOTHING else f"{word}={known.metavar}"
    return f"{word} is handed to {script}; faultrun's options go before it: faultrun {ours} {script}"


def resolve_program(settings: Settings, process: ProcessContext) -> Program:
    """Decide what to execute; UsageError when SCRIPT is missing, a folder, or nothing that can run."""
    words = settings.words
    as_module, as_written = settings.module, settings.no_python
    as_path = settings.run_path
    if not words or not words[0]:
        empty = "SCRIPT is an empty word, as a variable that is not set leaves it between quotes"
        hint = "faultrun --worker_num=4 train.py   (faultrun --help explains the options)"
        raise UsageError("nothing to run", because=empty if words else "no SCRIPT was given", hint=hint)
    if as_module and as_written:
        because = "with --module it is Python that runs"
        raise settings.refuse(Settings.no_python, because, "one of -m and --no-python")
    if as_path and (as_module or as_written):
        because = "it says that SCRIPT is a file of Python"
        raise settings.refuse(Settings.run_path, because, "--run-path alone")
    script, *arguments = words
    shown = words
    prefix: tuple[str, ...]
    source: Path | None
    search: Path | None = None
    if as_module:
        prefix, source, search = (process.python, "-u", "-m", script), _module(script, process), Path.cwd()
        shown = ("-m", *words)
    elif as_path or (script.endswith(".py") and not as_written):
        prefix, source = (process.python, "-u", script), _file(script)
    elif re.fullmatch(f"{_PYTHON}|{_SHELL}", script) and not as_written:
        prefix, source, search = _interpreted(script, arguments, process)
        del arguments[: len(prefix) - 1]
    else:
        files = (Path(word) for word in arguments if word.endswith(".py"))
        prefix = (_executable(script, other_launcher(words, module=False)),)
        source = next((file for file in files if os.path.isfile(file)), None)  # noqa: PTH113  it never raises
    command = Command(prefix=prefix, script_args=tuple(arguments), shown=shlex.join(shown))
    if source is None:
        return Program(command=command)
    return Program(command=command, source=source, search=(search or source.parent,))


def resolve_framework(ctx: ResolveContext, program: Program, recipe: "Recipe | None") -> Framework:
    """What the workers train with: named by the user or a recipe, else read from imports, else implied."""
    settings = ctx.settings
    if settings.framework is not None:
        return settings.framework
    if recipe is not None and recipe.framework is not None and not settings.gave(Settings.framework):
        return recipe.framework
    if (found := _imported(program)) is not Framework.PLAIN:
        return found
    implied = next((option for option in _MSRUN_ONLY if settings.gave(option)), None)
    if implied is not None:
        where = settings.where(implied)
        ctx.note(f"framework mindspore, because {where} is given (override: --framework)")
        return Framework.MINDSPORE
    shown = without_secret_words(program.command.shown)
    ctx.note(
        f"no torch, MindSpore or TensorFlow import found; treating {shown} as plain "
        "(override: --framework=torch)"
    )
    return Framework.PLAIN


def _imported(program: Program) -> Framework:
    """What the program imports, or the first Python file that it is a wrapper of."""
    from faultrun.frameworks.detect import detect
    from faultrun.frameworks.program_files import source_files

    files = [(program.source, program.search)] if program.source is not None else []
    words = (*program.command.prefix, *program.command.script_args)
    seen = (file for file in source_files(words) if file.suffix == ".py")
    for file, search in chain(files, ((file, (file.parent,)) for file in seen)):
        if (found := detect(file, search)) is not Framework.PLAIN:
            return found
    return Framework.PLAIN


def _module(module: str, process: ProcessContext) -> Path:
    """The file of ``python -m MODULE``: along the path that Python would use, the working directory first."""
    from faultrun.frameworks.detect import find_module

    if (source := find_module(module, (str(Path.cwd()), *process.import_path))) is None:
        because = "Python finds no file for it in the working directory or on its import path"
        hint = "the name as in `import NAME` (dots, no .py), from the folder that holds it"
        raise UsageError(f"no module {module} to run", because=because, hint=hint)
    return source


def _interpreted(
    interpreter: str, arguments: Sequence[str], process: ProcessContext
) -> tuple[tuple[str, ...], Path | None, Path | None]:
    """``python [OPTIONS] FILE|-m MODULE|-c CODE`` or a shell, as written: the words up to there.

    And the Python file, if there is one, with the folder of its neighbours where it is not the file's own.
    """
    if not on_path(interpreter):
        hint = "a .py file alone as SCRIPT runs with our own Python"
        raise UsageError(f"no command {interpreter}", because="it is not on PATH", hint=hint)
    python = re.fullmatch(_PYTHON, interpreter) is not None
    ending, valued = (_PYTHON_ENDING, _PYTHON_VALUED) if python else (_SHELL_ENDING, _SHELL_VALUED)
    kind, operand, end = _operand(arguments, ending, valued)
    prefix = (interpreter, *arguments[:end])
    if not kind and operand in ("", "-") and not _SAYS_AND_ENDS.intersection(arguments):
        because = f"{interpreter} would read its program from standard input, which no worker has"
        hint = "put the program into a file: faultrun train.py"
        raise UsageError("nothing to run", because=because, hint=hint)
    if kind == "m":
        return prefix, _module(operand, process), Path.cwd()
    if kind or not operand:
        return prefix, None, None
    if python:
        return prefix, None if Path(operand).is_dir() else _file(operand), None
    if not on_path(operand):
        _file(operand)
    return prefix, None, None


def _operand(arguments: Sequence[str], ending: str, valued: frozenset[str]) -> tuple[str, str, int]:
    """What an interpreter runs: a file (""), a module (m) or code (c), its text, and where that ends."""
    at = 0
    while at < len(arguments) and arguments[at][:1] in ("-", "+") and len(arguments[at]) > 1:
        word = arguments[at]
        if last := re.fullmatch(ending, word, re.DOTALL):
            end = min(at + (1 if last[2] else 2), len(arguments))
            return last[1], last[2] or "".join(arguments[at + 1 : end]), end
        at += 2 if word in valued else 1
    end = min(at + 1, len(arguments))
    return "", "".join(arguments[at:end]), end


def _file(script: str) -> Path:
    path = Path(script)
    if path.is_dir():
        because = "SCRIPT is the file that every worker runs"
        raise UsageError(f"{script} is a directory", because=because, hint=_inside(path))
    if not path.is_file():
        raise UsageError(f"no script {script}", because="there is no such file", hint=_near(path))
    return path


def _executable(script: str, instead: str) -> str:
    """A file of that name if there is one, else a command on PATH; else try ``instead``."""
    path = Path(script)
    if path.is_dir():
        _file(script)
    if not path.exists():
        if not on_path(script):
            because = "there is no such file" if "/" in script else "there is no such file or command"
            raise UsageError(f"no script {script}", because=because, hint=instead or _near(path))
        return script
    if not os.access(path, os.X_OK):
        because = "it does not end in .py and is not executable"
        hint = f"python {shlex.quote(script)}, or chmod +x {shlex.quote(script)}"
        raise UsageError(f"{script} cannot be run", because=because, hint=hint)
    return script if "/" in script else f"./{script}"


def _near(path: Path) -> str:
    """A file beside the missing one whose name is nearly the same."""
    folder = path.parent
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    if close := likely(path.name, names, cutoff=0.7):
        return f"did you mean {folder / close}?"
    if "/" not in str(path) and "." not in path.name:
        if path.name in VERBS:
            return f"a verb must be the first word: faultrun {path.name}"
        verb = likely(path.name, list(VERBS))
        return (
            f"did you mean faultrun {verb}?"
            if verb
            else "a path of a script; faultrun --help lists the verbs"
        )
    return f"a path as seen from {Path.cwd()}"


def _inside(folder: Path) -> str:
    scripts = sorted(entry.name for entry in folder.glob("*.py"))
    best = [name for name in scripts if name in ("train.py", "main.py", "__main__.py")] or scripts
    return str(folder / best[0]) if best else "a .py file, an executable, or -m MODULE"
