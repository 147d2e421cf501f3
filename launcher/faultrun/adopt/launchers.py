"""From the words of a command to a launch: torchrun, msrun and their like, behind what wraps them.

Nothing is run and no variable is expanded. torchrun's and msrun's options are faultrun's own, so the table of
its command line reads them; what others mean here stands in ``launcher_options``.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from faultrun.adopt.launch import AdoptedOption, FoundLaunch, Remark
from faultrun.adopt.launcher_options import ALWAYS_SETS, LAUNCHERS, LauncherOptions, Turns
from faultrun.adopt.several_nodes import ONE_NODE, nodes_of, over_slurm_nodes, srun_words, tasks_of
from faultrun.errors import UsageError

SameOptions = Callable[[Sequence[str]], tuple[Mapping[str, tuple[str, ...]], tuple[str, ...]]]
"""Reads words as ``faultrun run`` does: the options by name, and SCRIPT with its arguments. UsageError."""

ONE_NODE_HERE = "adopt reads several nodes of torchrun, msrun and srun only"
SEVERAL_HINT = (
    "the same on every node: faultrun --nnodes=N --nproc-per-node=M --master_addr=HOST_OF_THE_FIRST SCRIPT"
)

_OWN = frozenset({"torchrun", "msrun", "faultrun"})
MODULE_LAUNCHERS = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "faultrun": "faultrun",
    "accelerate.commands.launch": "accelerate launch",
    "deepspeed.launcher.runner": "deepspeed",
}
"""Launchers that are started as modules of Python."""

_TWO_WORDS = {
    ("accelerate", "launch"): "accelerate launch",
    ("fabric", "run"): "fabric run",
    ("lightning", "fabric"): "fabric run",
    ("lightning", "run"): "fabric run",
}
_SKIPPED = frozenset({"exec", "nohup", "time", "command", "setsid", "sudo"})
_STAYS = (("uv", "run"), ("poetry", "run"), ("pipenv", "run"), ("pdm", "run"))
_VALUED_OF_WRAPPERS = frozenset({"-n", "--name", "-p", "--prefix", "-c", "-N", "-m", "-l", "-C"})
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_PYTHON = re.compile(r"python(\d(\.\d+)?)?")
_SHELLS = frozenset({"bash", "sh", "dash", "zsh", "ksh"})
_STUCK = re.compile(r"-(np|n|N|c)(\d+)")
_SEVERAL_PROGRAMS = frozenset({"mpirun", "mpiexec"})
_MOST_WRAPPERS = 8
_HINT = 'faultrun adopt "torchrun --nproc-per-node=4 train.py --lr 1e-3", or a file that holds such a line'


def read_launch(words: Sequence[str], same: SameOptions) -> FoundLaunch:
    """What a command starts. UsageError: it starts no training, or nodes in a way that is not known."""
    return _read(tuple(words), same, _MOST_WRAPPERS)


def launcher_of(words: Sequence[str]) -> str:
    """The name of the launcher, or of the interpreter, behind assignments and wrappers; "" for others."""
    rest, _, _ = _unwrapped(tuple(words))
    name, _ = named_launcher(rest)
    if name:
        return name
    first = PurePosixPath(rest[0]).name if rest else ""
    return "python" if _PYTHON.fullmatch(first) or first.endswith(".py") else ""


def named_launcher(rest: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The launcher that the words start, and what stands behind it; "" for none that is known."""
    first = PurePosixPath(rest[0]).name if rest else ""
    if _PYTHON.fullmatch(first) and "-m" in rest[1:-1]:
        at = rest.index("-m")
        if all(word.startswith("-") for word in rest[1:at]):
            return MODULE_LAUNCHERS.get(rest[at + 1], ""), tuple(rest[at + 2 :])
        return "", ()
    two = _TWO_WORDS.get((first, rest[1])) if len(rest) > 1 else None
    if two is not None:
        width = 3 if two == "fabric run" and tuple(rest[1:3]) in (("fabric", "run"), ("run", "model")) else 2
        return two, tuple(rest[width:])
    return (first, tuple(rest[1:])) if first in _OWN or first in LAUNCHERS else ("", ())


def _read(words: tuple[str, ...], same: SameOptions, deepest: int) -> FoundLaunch:
    rest, environment, before = _unwrapped(words)
    if not rest or not deepest:
        because = "nothing is left to run" if deepest else "it wraps too many launchers in one another"
        raise UsageError("no training is started there", because=because, hint=_HINT)
    name, behind = named_launcher(rest)
    if not name:
        program, module = _program(rest)
        launch = FoundLaunch(launcher="python", program=program, module=module)
    elif name in _OWN:
        launch = _of_ours(name, behind, same)
    else:
        launch = _of_others(name, behind, same, deepest)
    return replace(launch, environment=(*environment, *launch.environment), before=(*before, *launch.before))


def _unwrapped(
    words: tuple[str, ...],
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...], tuple[str, ...]]:
    """The words behind ``VAR=x env nohup uv run ...``; the variables; the words that must stay."""
    rest, environment, before = list(words), list[tuple[str, str]](), list[str]()
    while rest:
        assigned = _ASSIGNMENT.fullmatch(rest[0])
        first = PurePosixPath(rest[0]).name
        if assigned is not None and not rest[0].startswith("-"):
            environment.append((assigned[1], assigned[2]))
            del rest[0]
        elif first in _SKIPPED or first == "env":
            del rest[0]
            while rest and rest[0].startswith("-"):
                del rest[0]
        elif tuple(rest[:2]) in _STAYS or tuple(rest[:2]) in (("conda", "run"), ("mamba", "run")):
            width = 2 + _options_width(rest[2:])
            before += rest[:width]
            del rest[:width]
        elif first in ("numactl", "nice", "taskset", "stdbuf", "timeout"):
            width = 1 + _options_width(rest[1:])
            width += 1 if first in ("taskset", "timeout") and len(rest) > width else 0
            before += rest[:width]
            del rest[:width]
        else:
            break
    return tuple(rest), tuple(environment), tuple(before)


def _options_width(words: Sequence[str]) -> int:
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in _VALUED_OF_WRAPPERS else 1
    return min(at, len(words))


def _of_ours(name: str, behind: tuple[str, ...], same: SameOptions) -> FoundLaunch:
    given, program = same(behind)
    options = list[AdoptedOption]()
    module, as_written = "module" in given, "no_python" in given
    several = _over_nodes(given)
    for option, values in given.items():
        if option in ("module", "run_path"):
            continue
        read = f"{name} --{option}"
        if option == "nnodes" and not several:
            continue
        if option in ("nproc_per_node", "local_worker_num") and values[-1].isdecimal() and not several:
            options.append(AdoptedOption(name="worker_num", values=values, read=read))
        else:
            options.append(AdoptedOption(name=option, values=values, read=read))
    counts = [one for one in options if one.name == "worker_num"]
    options = [one for one in options if one not in counts[1:]]
    if not as_written and not module:
        program, module = _program(program)
    if not program:
        because = "no script stands behind its options"
        raise UsageError(f"{name} starts nothing there", because=because, hint=_HINT)
    return FoundLaunch(launcher=name, program=program, module=module, options=tuple(options))


def _over_nodes(given: Mapping[str, tuple[str, ...]]) -> bool:
    """Torchrun's ``--nnodes``, or msrun's workers of which only some are on this node."""
    own, whole = given.get("local_worker_num", ()), given.get("worker_num", ())
    return given.get("nnodes", ("",))[-1] not in ONE_NODE or bool(own and whole and own[-1] != whole[-1])


def _of_others(name: str, behind: tuple[str, ...], same: SameOptions, deepest: int) -> FoundLaunch:
    found = FoundLaunch(launcher=name, program=(), environment=ALWAYS_SETS.get(name, ()))
    row = LAUNCHERS[name]
    given, rest = _split(behind, row)
    if name == "srun" and rest:
        spread = _srun_over_nodes(given, behind[: len(behind) - len(rest)], rest, same, deepest)
        if spread is not None:
            return spread
    module = False
    for option, value in given:
        if (turns := row.get(option.lstrip("-").replace("-", "_"))) is None:
            no_effect = (*found.no_effect, Remark(what=f"{name} {option}", why="faultrun has no such option"))
            found = replace(found, no_effect=no_effect)
        elif turns.nodes:
            found = replace(found, doubts=(*found.doubts, *_one_node(name, option, value)))
        elif turns.module:
            module = True
        else:
            found = _turned(found, turns, option, value)
    if not rest:
        because = "no script stands behind its options"
        raise UsageError(f"{name} starts nothing there", because=because, hint=_HINT)
    if module:
        return replace(found, program=rest, module=True)
    if name in _SEVERAL_PROGRAMS and ":" in rest:
        because = "`:` stands between them, and all workers of a faultrun run the same script"
        hint = f"one script that chooses by RANK what it does; or keep {name}"
        raise UsageError(f"{name} starts several programs", because=because, hint=hint)
    if (inner := _read(rest, same, deepest - 1)).launcher == "python":
        return replace(found, program=inner.program, module=inner.module, before=inner.before)
    return _nested(found, inner)


def _srun_over_nodes(
    given: list[tuple[str, str]],
    options: tuple[str, ...],
    rest: tuple[str, ...],
    same: SameOptions,
    deepest: int,
) -> FoundLaunch | None:
    """Srun as it is before a launcher that spans the nodes, or in place of one; None on one node."""
    inner, nodes = _read(rest, same, deepest - 1), nodes_of(given)
    if inner.launcher in _OWN and inner.over_nodes:
        return replace(inner, before=("srun", *options, *inner.before))
    if inner.launcher != "python" or not nodes.isdecimal() or int(nodes) == 1:
        return None
    found = replace(inner, launcher="srun")
    return over_slurm_nodes(found, nodes, tasks_of(given, int(nodes)), "srun", srun_words(given))


def _split(words: tuple[str, ...], row: LauncherOptions) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
    """The launcher's options with their values, and what it starts; unknown ones by their looks."""
    given: list[tuple[str, str]] = []
    at = 0
    while at < len(words) and words[at].startswith("-"):
        if words[at] == "--":
            at += 1
            break
        if stuck := _STUCK.fullmatch(words[at]):
            given.append((f"-{stuck[1]}", stuck[2]))
            at += 1
            continue
        option, equals, value = words[at].partition("=")
        turns = row.get(option.lstrip("-").replace("-", "_"))
        follower = words[at + 1] if at + 1 < len(words) else ""
        looks_valued = bool(follower) and not follower.startswith("-") and not _is_program(follower)
        width = 0 if equals else turns.width if turns is not None else int(looks_valued)
        given.append((option, value if equals else " ".join(words[at + 1 : at + 1 + width])))
        at += 1 + width
    return given, words[at:]


def _turned(launch: FoundLaunch, turns: Turns, option: str, value: str) -> FoundLaunch:
    read = f"{launch.launcher} {option}"
    if turns.variable:
        kept = turns.always or value
        if turns.variable == "VALUE":  # mpirun -x NAME=VALUE; a name alone is inherited anyway
            name, joint, kept = value.partition("=" if "=" in value else " ")
            pairs = ((name, kept),) if joint else ()
        else:
            pairs = ((turns.variable, kept),)
        launch = replace(launch, environment=(*launch.environment, *pairs))
    if turns.option:
        values = (turns.reads(value) if "$" not in value else value,)
        if values[0]:
            chosen = AdoptedOption(name=turns.option, values=values, read=read)
            launch = replace(launch, options=(*launch.options, chosen))
    if turns.why:
        remark = Remark(what=f"{read}{f' {value}' if value else ''}", why=turns.why)
        launch = replace(launch, no_effect=(*launch.no_effect, remark))
    return launch


def _nested(outer: FoundLaunch, inner: FoundLaunch) -> FoundLaunch:
    """A launcher that starts another: ``srun torchrun``. The outer one's tasks are nodes."""
    for one in outer.options:
        if one.name == "worker_num" and one.values[-1].isdecimal() and int(one.values[-1]) > 1:
            what = f"{one.read}={one.values[-1]} starts {inner.launcher} {one.values[-1]} times"
            raise _several_nodes(what, "each of them would be a node of the run")
    environment = (*outer.environment, *inner.environment)
    no_effect = (*outer.no_effect, *inner.no_effect)
    return replace(inner, environment=environment, no_effect=no_effect, doubts=(*outer.doubts, *inner.doubts))


def _program(words: tuple[str, ...]) -> tuple[tuple[str, ...], bool]:
    """SCRIPT and its arguments as faultrun takes them, and whether SCRIPT is a module."""
    if words and _PYTHON.fullmatch(words[0]):
        rest = words[1:]
        while rest and rest[0] in ("-u", "-B", "-O"):
            rest = rest[1:]
        if rest[:1] == ("-m",) and len(rest) > 1:
            return rest[1:], True
        if rest and not rest[0].startswith("-"):
            return rest, False
    return words, False


def _is_program(word: str) -> bool:
    name = PurePosixPath(word).name
    known = name in _SHELLS or name in LAUNCHERS or name in _OWN
    return word.endswith(".py") or known or _PYTHON.fullmatch(name) is not None


def _one_node(launcher: str, option: str, value: str) -> tuple[Remark, ...]:
    """Nothing for one node; a doubt where a variable says how many. UsageError for several."""
    if value and value in ONE_NODE:
        return ()
    if "$" in value or not value:
        why = f"{value or 'nothing'} says how many nodes; {ONE_NODE_HERE}"
        return (Remark(what=f"{launcher} {option}", why=why),)
    raise _several_nodes(f"{launcher} {option}={value}", ONE_NODE_HERE)


def _several_nodes(what: str, because: str) -> UsageError:
    return UsageError(f"{what} asks for several nodes", because=because, hint=SEVERAL_HINT)
