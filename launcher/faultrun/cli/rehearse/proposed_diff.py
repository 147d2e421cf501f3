"""The changes that a rehearsal proposes for ``faultrun.yaml``, as a diff."""

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from faultrun.adopt.launch import AdoptedOption, FoundLaunch
from faultrun.adopt.program import KnownProgram, NearbyFiles, read_program
from faultrun.adopt.proposal import propose, yaml_value
from faultrun.adopt.questions import loaded_by
from faultrun.cli.options.config_beside_script import CONFIG_NAME, NO_CONFIG
from faultrun.cli.options.settings import Asked, Settings
from faultrun.cli.rehearse.request import settings_of
from faultrun.rehearse.outcome import RehearsalOutcome
from faultrun.rehearse.proposed_options import as_diff, wanted_options, with_options


def proposed(asked: Asked, found: RehearsalOutcome) -> str:
    """A diff from the working directory; empty where nothing is to be changed.

    What was typed wins over a file: for those options a line before the diff says what to type.
    """
    settings = settings_of(asked)
    program = _program(asked, module=settings.module)
    launch = FoundLaunch(launcher="faultrun", program=asked.words, module=settings.module)
    read = propose(launch, program, {}).options
    by_name = loaded_by(program)
    if by_name is not None and not any(one.name == "recipe" for one in read):
        read = (*read, replace(by_name, read=f"by its name: {by_name.read}"))
    options = wanted_options(found, read, str(Path.cwd()))
    typed = [one for one in options if one.name in asked.options]
    parts = [f"# type --{one.name}={value}  ({one.read})\n" for one in typed for value in one.values]
    options = tuple(one for one in options if one not in typed)
    if options:
        parts.append(_in_config(program, settings, options))
    return "".join(parts)


def _program(asked: Asked, *, module: bool) -> KnownProgram:
    launch = FoundLaunch(launcher="faultrun", program=asked.words, module=module)
    return read_program(launch, NearbyFiles(root=Path.cwd(), beside=(Path.cwd(),)), os.environ)


def _in_config(program: KnownProgram, settings: Settings, options: tuple[AdoptedOption, ...]) -> str:
    named = settings.config
    if named and named != NO_CONFIG:
        path = Path(named)
    elif program.script is not None and named != NO_CONFIG:
        path = program.script.parent / CONFIG_NAME
    else:
        words = (f"--{one.name}={yaml_value(one.values, one.name)}" for one in options)
        return "".join(f"# type {word}\n" for word in words)
    before = None
    with suppress(FileNotFoundError):
        before = path.read_text(encoding="utf-8")
    return as_diff(os.path.relpath(path), before, with_options(before or "", options))
