"""Reads a faultrun command line out of a manifest, as faultrun itself will read it in the container."""

from collections.abc import Mapping

from faultrun import __version__
from faultrun.cli.options.command import FaultrunGroup, run_command
from faultrun.cli.options.settings import Asked, Settings, collect
from faultrun.manifests.lint_input import PodRequirements

_ABOUT_ITSELF = frozenset({"-h", "--help", "--version"})


def read_requirements(words: tuple[str, ...], environ: Mapping[str, str]) -> PodRequirements:
    """What ``faultrun WORDS`` asks for with these variables. Raises UsageError as a start would.

    A config file is in the container, not here: with one, nothing is known.
    """
    asked = _asked(words)
    if asked is None or "config" in asked.options or "FAULTRUN_CONFIG" in environ:
        return PodRequirements()
    settings = collect(asked, environ)
    own, both = settings.stop_grace, settings.shutdown_timeout
    return PodRequirements(
        stop_grace_s=both if own is None else own,
        log_dir=settings.log_dir,
        checkpoint_dirs=settings.texts(Settings.checkpoint_dir),
        resume=settings.read(Settings.resume, str),
    )


def _asked(words: tuple[str, ...]) -> Asked | None:
    """The options and SCRIPT; None for a verb, or where only help or version is asked for."""
    if not words or _ABOUT_ITSELF.intersection(words):
        return None
    program = FaultrunGroup(run_command(lambda asked: asked), version=__version__)
    answer = program.main(list(words), "faultrun", standalone_mode=False)
    return answer if isinstance(answer, Asked) else None
