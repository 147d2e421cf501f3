"""A recipe as values: how one known training code is resumed, before it meets a script.

Texts may hold references to what the user gave (``{arg:config_path}``); nothing here looks them up.
"""

from dataclasses import dataclass

from faultrun.model.spec.run_spec import Framework, Pointer, Replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrase:
    """A text of the recipe and its 1-based line, for messages."""

    text: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeRewrite:
    """A configuration value to set; ``optional`` ones are left alone where they are not there already.

    ``format`` is empty when the file's name tells it.
    """

    file: Phrase
    key: Phrase
    value: Phrase
    format: str = ""
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A recipe that was read and checked.

    ``source`` is its file as a person would name it. Each of ``checkpoint_dirs`` is the parts of a path,
    joined as ``os.path.join`` does. ``resume_args_if_given`` only replace arguments that the script was
    given. ``example`` is a command line, ``detect`` are dotted names that such a code imports. ``formats``
    are the only ones that count; empty: all. ``resharded``: a checkpoint of all ranks loads into any number
    of workers. ``resume_environment`` are TEMPLATEs, set whenever an incarnation resumes.
    """

    name: str
    source: str
    summary: str
    example: str = ""
    detect: tuple[str, ...] = ()
    framework: Framework | None = None
    config: Phrase | None = None
    checkpoint_dirs: tuple[tuple[Phrase, ...], ...] = ()
    rewrites: tuple[RecipeRewrite, ...] = ()
    pointers: tuple[Pointer, ...] = ()
    resume_args: tuple[Phrase, ...] = ()
    resume_args_if_given: tuple[Phrase, ...] = ()
    replicas: Replicas = Replicas.AUTO
    formats: tuple[str, ...] = ()
    resharded: bool | None = None
    environment: tuple[tuple[str, str], ...] = ()
    resume_environment: tuple[tuple[str, str], ...] = ()
