"""``--compile_cache``: where MindSpore keeps compiled graphs for the next incarnation, if anywhere."""

from pathlib import Path

from faultrun.cli.options.settings import Settings
from faultrun.cli.resolve.process_context import Notes, Surroundings
from faultrun.cli.resolve.program import Program
from faultrun.model.spec import Framework

_NOWHERE = ("", "none")
_WITH_THE_LOGS = "log_dir"


def resolve_compile_cache(
    settings: Settings,
    around: Surroundings,
    notes: Notes,
    run: tuple[Framework, Program, int, str],
) -> str:
    """The folder of this job's graphs, absolute; empty when none are kept."""
    framework, program, world_size, log_dir = run
    asked = settings.read("compile_cache", str) or ""
    if asked in _NOWHERE:
        return ""
    if framework is not Framework.MINDSPORE:
        notes.no_effect(
            "compile_cache", f"only MindSpore keeps compiled graphs, and this is {framework.value}"
        )
        return ""
    if "MS_COMPILER_CACHE_PATH" in around.environ:
        notes.no_effect("compile_cache", "MS_COMPILER_CACHE_PATH is set")
        return ""
    from faultrun.frameworks.mindspore import compile_cache_key, installed_version

    version = installed_version(program.command, around.python, around.import_path)
    home = Path(log_dir) / "compile_cache" if asked == _WITH_THE_LOGS else Path(asked)
    return str(home.absolute() / compile_cache_key(program.source, program.command, world_size, version))
