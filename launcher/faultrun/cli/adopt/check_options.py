"""What faultrun itself would say of adopted options, asked without starting anything."""

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from faultrun import __version__
from faultrun.adopt.launch import AdoptedOption, FoundLaunch
from faultrun.adopt.program import KnownProgram
from faultrun.adopt.proposal import Proposal
from faultrun.adopt.questions import FOLDER_OPTION
from faultrun.cli.options.command import FaultrunGroup, run_command
from faultrun.cli.options.settings import OPTIONS, Asked, collect
from faultrun.cli.resolve.context import ProcessContext
from faultrun.cli.resolve.spec import resolve
from faultrun.errors import FaultrunError

_NOTHING = " has no effect here: "
_JUDGED_ELSEWHERE = frozenset({"worker_num", "local_worker_num", "nproc_per_node"})


_MEETING = frozenset(
    {"nnodes", "node_rank", "master_addr", "master_port", "rdzv_backend", "rdzv_endpoint", "rdzv_conf"}
)
_SOMEWHERE = "192.0.2.1:2379"
"""No host has this address (RFC 5737): it stands for one that a shell fills in."""
_SEVERAL = {"nnodes": ("2",), "rdzv_backend": ("etcd",), "rdzv_endpoint": (_SOMEWHERE,)}


def same_options(words: Sequence[str]) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """Read words as ``faultrun run`` does: torchrun's and msrun's options are its own. UsageError."""
    program = FaultrunGroup(run_command(lambda asked: asked), version=__version__)
    asked = program.main(["run", *words], "faultrun", standalone_mode=False)
    if not isinstance(asked, Asked):
        return {}, ()
    return dict(asked.options), asked.words


def without_effect(launch: FoundLaunch, program: KnownProgram) -> dict[str, str]:
    """The options that would do nothing here, by name, and why."""
    found: dict[str, str] = {}
    for one in launch.options:
        if one.open or one.name in _JUDGED_ELSEWHERE or one.name not in OPTIONS:
            continue
        if launch.over_nodes and one.name in _MEETING:
            continue
        size = _SEVERAL if launch.over_nodes else {"worker_num": ("1",)}
        asked = Asked(
            options={**size, one.name: one.values, "framework": (program.framework.value,)},
            words=(str(Path(__file__)),),
        )
        start = f"{OPTIONS[one.name].spelled}{_NOTHING}"
        for note in _notes(asked):
            if note.startswith(start):
                found[one.name] = note.removeprefix(start)
    return found


def _notes(asked: Asked) -> tuple[str, ...]:
    try:
        return resolve(collect(asked, {}), _process({})).notes
    except FaultrunError:
        return ()


def refusal_of(proposal: Proposal, program: KnownProgram, page: str, root: Path) -> str:
    """Why a run with these options would not start from ``root``; "" if it would.

    A script of Python is stood for by a file that is here in any case: what it imports is not looked at.
    """
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="faultrun-adopt-") as folder:
        config = Path(folder, "faultrun.yaml")
        config.write_text(page, encoding="utf-8")
        try:
            os.chdir(root)
            typed = tuple(_filled_in(one) for one in proposal.typed if one.name in (FOLDER_OPTION, *_MEETING))
            options, words = same_options(replace(proposal, typed=typed).words[1:])
            if program.source is not None:
                options = {"framework": (program.framework.value,), **options}
                options.pop("module", None)
                words = (str(Path(__file__)), *words[1:])
            asked = Asked(options={**options, "config": (str(config),), "dry_run": ("True",)}, words=words)
            resolve(collect(asked, {}), _process(dict(os.environ)))
        except FaultrunError as error:
            told = f"{error.what}: {error.because}".replace(f"{config}", "faultrun.yaml")
            return f"faultrun would refuse this: {told}"
        finally:
            os.chdir(before)
    return ""


def _filled_in(option: AdoptedOption) -> AdoptedOption:
    """With something of its kind in place of what only a shell knows."""
    if not option.open or option.name == FOLDER_OPTION:
        return option
    host, _, port = _SOMEWHERE.partition(":")
    instead = {"nnodes": "2", "node_rank": "0", "master_port": port, "rdzv_endpoint": _SOMEWHERE}
    instead |= {"rdzv_backend": "etcd", "rdzv_conf": "timeout=60", "master_addr": host}
    return replace(option, values=(instead[option.name],))


def _process(environ: Mapping[str, str]) -> ProcessContext:
    return ProcessContext(
        environ=environ, python=sys.executable, import_path=tuple(sys.path), pid=os.getpid(), root=Path("/")
    )
