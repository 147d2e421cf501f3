"""A training's start as it was found: which launcher, what its options mean here, what it runs."""

from dataclasses import dataclass


def needs_shell(text: str) -> bool:
    """Whether only a shell can say what ``text`` comes to."""
    return "$" in text or "`" in text


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedOption:
    """Values for the option ``name`` of faultrun; ``read`` says where they come from."""

    name: str
    values: tuple[str, ...]
    read: str

    @property
    def open(self) -> bool:
        """Whether a shell has to fill something in, so that no file can hold it."""
        return any(needs_shell(value) for value in self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """Something about ``what`` that a person should know."""

    what: str
    why: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.what}: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLaunch:
    """How a training is started now.

    ``program`` is SCRIPT with its arguments as faultrun takes them, ``module`` says that SCRIPT is one.
    ``before`` are words that stay before the launcher (``uv run``), ``environment`` are variables that the
    launcher or the command sets for the workers. ``no_effect`` are the launcher's words that mean nothing
    here, ``doubts`` what could not be told.
    """

    launcher: str
    program: tuple[str, ...]
    module: bool = False
    options: tuple[AdoptedOption, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    before: tuple[str, ...] = ()
    no_effect: tuple[Remark, ...] = ()
    doubts: tuple[Remark, ...] = ()

    @property
    def over_nodes(self) -> bool:
        """Whether it is one of several nodes: the same line stands on each."""
        return any(one.name in ("nnodes", "local_worker_num") for one in self.options)
