"""What a person named, a command or a file, as the launch that it holds and the place where that stands."""

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from faultrun.adopt.accelerate_config import configured_words
from faultrun.adopt.container import ContainerStart, dockerfile_start, manifest_start
from faultrun.adopt.launch import AdoptedOption, FoundLaunch, Remark
from faultrun.adopt.launchers import SEVERAL_HINT, SameOptions, launcher_of, read_launch
from faultrun.adopt.program import NearbyFiles
from faultrun.adopt.several_nodes import over_slurm_nodes, tasks_of
from faultrun.adopt.shell_script import ScriptCommand, ScriptReader, chosen_command
from faultrun.errors import FaultrunError, UsageError
from faultrun.files import bytes_from
from faultrun.text.patch import MalformedText, line_of

_MOST_BYTES = 4 << 20
_KNOWN = "torchrun, msrun, accelerate launch, deepspeed, mpirun, srun, fabric run or python"
_EXAMPLE = 'faultrun adopt "torchrun --nproc-per-node=4 train.py --lr 1e-3"'
_MANIFESTS = frozenset({".yaml", ".yml", ".json"})
_SBATCH = re.compile(r"(?m)^#SBATCH[ \t]+--?([\w-]+)(?:[= \t]+(\S+))?")
_VARIABLE = re.compile(r"\$(?:\w+|\{\w+\})")
_OR_DEFAULT = re.compile(r"\$\{(\w+):?[-=]([^${}]+)\}")
_DOCKERFILE = re.compile(r"(?mi)^FROM[ \t]+\S")


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """How a training is started now, and where that is written.

    ``file`` holds it, None where it was typed; ``command`` is its place in a shell's text. ``container`` is
    set where a container starts it. ``found`` are the other commands that might have been meant.
    """

    launch: FoundLaunch
    places: NearbyFiles
    said: str
    file: Path | None = None
    command: ScriptCommand | None = None
    container: ContainerStart | None = None
    found: tuple[ScriptCommand, ...] = ()
    notes: tuple[str, ...] = ()


def read_start(words: Sequence[str], folder: Path, same: SameOptions) -> Start:
    """Find the launch in a command, or in the file that is named. UsageError, ConfigError: there is none."""
    if not words or not "".join(words).strip():
        raise UsageError("nothing to adopt", because="no command and no file was named", hint=_EXAMPLE)
    if any("\0" in word for word in words):
        raise UsageError("nothing to adopt", because="a word holds a zero byte", hint=_EXAMPLE)
    if len(words := _submitted(words)) == 1:
        path = Path(words[0])
        if os.path.isfile(path):  # noqa: PTH113  a word may be longer than a name can be: this never raises
            return _of_file(path, folder, same)
        if os.path.isdir(path):  # noqa: PTH112
            because, hint = "it is a directory", f"{words[0]}/train.py, or a script or manifest in it"
            raise UsageError(f"{words[0]} cannot be adopted", because=because, hint=hint)
        if not any(mark in words[0] for mark in " \t\n"):
            because = "there is no such file, and it is no command with a script"
            raise UsageError(f"{words[0]} cannot be adopted", because=because, hint=_EXAMPLE)
    text = words[0] if len(words) == 1 else shlex.join(words)
    places = NearbyFiles(root=folder, beside=(folder,))
    return _of_shell(text, "", places, same, said=text)


def _submitted(words: Sequence[str]) -> Sequence[str]:
    """The script of ``sbatch [OPTIONS] SCRIPT [ARGS]``, in one word or in several; others as they are."""
    try:
        typed = shlex.split(words[0]) if len(words) == 1 else list(words)
    except ValueError:
        return words
    if not typed or PurePosixPath(typed[0]).name != "sbatch":
        return words
    return next(([word] for word in typed[1:] if not word.startswith("-")), words)


def _of_file(path: Path, folder: Path, same: SameOptions) -> Start:
    if path.suffix == ".py":
        launch = FoundLaunch(launcher="python", program=(str(path),))
        return Start(launch=launch, places=NearbyFiles(root=folder, beside=(folder,)), said=f"python {path}")
    text = _text(path)
    places = NearbyFiles(root=folder, beside=(path.absolute().parent, folder))
    if path.suffix in _MANIFESTS:
        return _of_container(manifest_start(text, str(path)), path, places, same)
    if path.name.startswith("Dockerfile") or path.suffix == ".dockerfile" or _DOCKERFILE.search(text):
        return _of_container(dockerfile_start(text, str(path)), path, places, same)
    start = _of_shell(text, str(path), places, same, said=str(path))
    return _with_batch_options(replace(start, file=path), text)


def _text(path: Path) -> str:
    data = bytes_from(path, 0, _MOST_BYTES + 1)
    because = ""
    if len(data) > _MOST_BYTES:
        because = "it is larger than 4 MiB"
    elif b"\0" in data:
        because = "it is no text"
    elif not data.strip():
        because = "it is empty, or cannot be read"
    if because:
        hint = "a shell script, a manifest, a Dockerfile, or a command in quotation marks"
        raise UsageError(f"{path} cannot be adopted", because=because, hint=hint)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        hint = f"convert {path} to UTF-8"
        because = f"byte {error.start} is not UTF-8"
        raise UsageError(f"{path} cannot be adopted", because=because, hint=hint) from None


def _of_shell(text: str, file: str, places: NearbyFiles, same: SameOptions, *, said: str) -> Start:
    def read(name: str) -> str | None:
        path = places.here(name)
        texts.append("" if path is None else bytes_from(path, 0, _MOST_BYTES).decode("utf-8", "replace"))
        return None if path is None else texts[-1]

    texts = [text]
    shown = file or "the command"
    reader = ScriptReader(read)
    try:
        found = reader.commands(text, file)
    except MalformedText as error:
        what = f"{shown}:{error.line} cannot be read" if file else "the command cannot be read"
        raise UsageError(what, because=error.because, hint="check it: bash -n") from None
    if not found and reader.absent:
        name = reader.absent[-1]
        because = f"it runs {name}, which is not here"
        hint = f"from the folder that holds it, or faultrun adopt {PurePosixPath(name).name}"
        raise UsageError(f"{shown} cannot be followed", because=because, hint=hint)
    if not found:
        because = f"it starts none of {_KNOWN} as far as can be seen"
        raise UsageError(f"{shown} starts no training", because=because, hint=_EXAMPLE)
    command, folders = _folder_of_each(chosen_command(found))
    launch = read_launch(_configured(command.words, places), same)
    launch = replace(launch, options=(*launch.options, *folders))
    started = replace(places, root=_root(command, launch, places))
    notes, fixed = [], {value for one in launch.options for value in one.values}
    defaults = [one for one in _OR_DEFAULT.findall("\n".join(texts)) if one[1].strip("\"'") in fixed]
    for name, value in dict.fromkeys(defaults):
        notes.append(f"{shown} takes {name} from its environment, if that is set: read here is {value}")
    if len({one.words for one in found}) > 1:
        taken, *others = dict.fromkeys(_place(one, found, shown) for one in (command, *found))
        notes.append(f"taken: {taken}; {', '.join(others)} start Python, too")
    if command.in_loop and not command.per_device:
        notes.append(
            f"{command.file or shown}:{command.line} stands in a loop, which trains several times: "
            "faultrun takes the place of the launcher's words, and the loop stays"
        )
    if command.per_device:
        notes.append(
            f"{command.file}:{command.line} stands in a loop that starts a process for each device: faultrun "
            "takes the place of the whole loop; how many there are is --worker_num"
        )
    return Start(
        launch=launch, places=started, said=said, command=command, found=found, notes=tuple(notes),
        file=Path(file) if file else None,
    )  # fmt: skip


def _place(one: ScriptCommand, found: Sequence[ScriptCommand], shown: str) -> str:
    """File and line; with the command itself where the line holds several."""
    place = f"{one.file or shown}:{one.line}"
    on_line = {other.start for other in found if (other.file, other.line) == (one.file, one.line)}
    return place if len(on_line) == 1 else f"{place} ({' '.join(one.text.split())})"


def _folder_of_each(command: ScriptCommand) -> tuple[ScriptCommand, tuple[AdoptedOption, ...]]:
    """A loop that enters ``train_parallel$i`` gives each process a folder: ``--worker_dir``."""
    parts = PurePosixPath(command.folder).parts
    if (at := next((number for number, part in enumerate(parts) if "$" in part), None)) is None:
        return command, ()
    before = str(PurePosixPath(*parts[:at])) if at else ""
    own, variables = _VARIABLE.subn("{rank}", "/".join(parts[at:]))
    if not command.per_device or variables != 1:
        return replace(command, folder=before), ()
    read = f"{command.file}:{command.line} enters {command.folder}"
    return replace(command, folder=before), (AdoptedOption(name="worker_dir", values=(own,), read=read),)


def _configured(words: tuple[str, ...], places: NearbyFiles) -> tuple[str, ...]:
    """The words with what accelerate's own configuration adds before the options that are typed."""
    if launcher_of(words) != "accelerate launch":
        return words
    found = (n for n, word in enumerate(words) if word == "launch" or word.endswith("commands.launch"))
    at = next(found, 0) + 1
    named = ""
    for number, word in enumerate(words[at:], start=at):
        if word.endswith(".py"):
            break
        if word.startswith(("--config_file=", "--config-file=")):
            named = word.partition("=")[2]
        elif word in ("--config_file", "--config-file") and number + 1 < len(words):
            named = words[number + 1]
    path = places.here(named) if named else None
    if not named:
        return words
    if path is None:
        what = f"{named} is not here"
        because = "accelerate launch takes its options from it"
        raise UsageError(what, because=because, hint="from the folder that holds it")
    return (*words[:at], *configured_words(_text(path), named), *words[at:])


def _root(command: ScriptCommand, launch: FoundLaunch, places: NearbyFiles) -> Path:
    """The folder in which the training starts, as far as its script can be found from there."""
    entered = [base / command.folder for base in (places.root, *places.beside)] if command.folder else []
    named = launch.program[0] if launch.program and not launch.module else ""
    for folder in (*entered, places.root, *places.beside):
        if named and os.path.isfile(folder / named):  # noqa: PTH113  it never raises
            return Path(os.path.normpath(folder))
    return next((Path(os.path.normpath(one)) for one in entered if os.path.isdir(one)), places.root)  # noqa: PTH112


def _of_container(container: ContainerStart, path: Path, places: NearbyFiles, same: SameOptions) -> Start:
    within = replace(places, root=path.absolute().parent)
    said = f"{path}:{container.line}"
    text = container.script or shlex.join(container.words)
    try:
        start = _of_shell(text, "", within, same, said=said)
    except FaultrunError as error:
        what = f"{said} ({container.name}): {error.what}"
        raise UsageError(what, because=error.because, hint=error.hint) from None
    notes = list(start.notes)
    counted = any(one.name in ("worker_num", "nproc_per_node") for one in start.launch.options)
    if not counted and container.devices:
        notes.append(f"as many workers as the container sees devices ({container.devices})")
    return replace(start, file=path, container=container, notes=tuple(notes))


def _with_batch_options(start: Start, text: str) -> Start:
    """What ``#SBATCH`` lines say of tasks and nodes."""
    told = {found[1]: (found[2] or "", line_of(text, found.start())) for found in _SBATCH.finditer(text)}
    if not told:
        return start
    nodes, line = next((told[name] for name in ("nodes", "N") if name in told), ("1", 0))
    launch = start.launch
    tasks = next((told[name] for name in ("ntasks-per-node", "ntasks", "n") if name in told), None)
    by_srun = start.command is not None and launcher_of(start.command.words) == "srun"
    several = nodes.isdecimal() and int(nodes) > 1
    if several and not launch.over_nodes:
        if not by_srun or launch.launcher != "srun":
            because = f"{launch.launcher} is started on the first alone: no srun stands before it"
            hint = f"srun before it; {SEVERAL_HINT}"
            raise UsageError(f"{start.file}:{line} asks for {nodes} nodes", because=because, hint=hint)
        given = [(f"--{name}", value) for name, (value, _) in told.items()]
        own = next((one.values[-1] for one in launch.options if one.name == "worker_num"), "")
        given += [("--ntasks", own)] if own else []
        launch = over_slurm_nodes(launch, nodes, tasks_of(given, int(nodes)), f"{start.file}:{line} #SBATCH")
    elif not several and by_srun and launch.launcher == "srun" and tasks is not None and tasks[0].isdecimal():
        if not any(one.name == "worker_num" for one in launch.options):
            read = f"{start.file}:{tasks[1]} #SBATCH"
            chosen = AdoptedOption(name="worker_num", values=(tasks[0],), read=read)
            launch = replace(launch, options=(chosen, *launch.options))
        why = "faultrun starts the workers itself: one task with all devices is enough"
        no_effect = (*launch.no_effect, Remark(what=f"{start.file}:{tasks[1]} tasks", why=why))
        launch = replace(launch, no_effect=no_effect)
    notes = list(start.notes)
    if "signal" not in told:
        notes.append(
            "no #SBATCH --signal: `#SBATCH --signal=TERM@120` has the ranks save before the time limit "
            "(`faultrun render slurm` is a whole batch script)"
        )
    elif (shell := told["signal"][0].upper()).startswith(("B:", "BR:", "RB:")):
        notes.append(
            f"#SBATCH --signal={shell} is for the batch shell alone: leave out B:, and faultrun gets it"
        )
    return replace(start, launch=launch, notes=tuple(notes))
