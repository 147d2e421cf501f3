"""What an option is, where its value was written, and the error that blames that place.

The rows are the attributes of ``Settings``: ``settings.grace`` is the value, ``Settings.grace`` the option.
"""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from functools import cache
from itertools import pairwise
from typing import Any, Generic, TypeVar, overload

from faultrun.cli.options.values import as_text, or_none, switch
from faultrun.core.redact import without_passwords
from faultrun.errors import ConfigError, FaultrunError, UsageError

_T = TypeVar("_T")
V = TypeVar("V")

_LONGEST_SHOWN = 120


class Takes(Enum):
    """What follows the name of an option."""

    VALUE = "a value"
    LIST = "a value, and may be given again"
    NOTHING = "nothing"
    SWITCH = "True or False, or nothing for True"


class Layer(Enum):
    """Who gave a value."""

    COMMAND_LINE = "command line"
    ENVIRONMENT = "environment"
    CONFIG = "config file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A value as it was written. ``where`` names the option, variable or line of the config file."""

    texts: tuple[str, ...]
    layer: Layer
    where: str

    @property
    def text(self) -> str:
        """The one value of an option that takes one."""
        return self.texts[-1]


class Options:
    """What was said of each option, as text by name; the rows read it."""

    def __init__(self, given: Mapping[str, Written]) -> None:
        self.given = given

    def gave(self, option: "Option[Any]") -> bool:
        """Whether it was set, in any layer."""
        return option.name in self.given

    def where(self, option: "Option[Any]") -> str:
        """The place where it was set, or its spelling if it was not set."""
        return self.given[option.name].where if self.gave(option) else option.spelled

    def texts(self, option: "Option[Any]") -> tuple[str, ...]:
        """What was written, not yet read; empty if it was not set."""
        return self.given[option.name].texts if self.gave(option) else ()

    def read(self, option: "Option[Any]", meaning: Callable[[str], V]) -> V | None:
        """What the text means to a reader that knows more than its row; None if it was not set."""
        found = self.given.get(option.name)
        return None if found is None else option.blamed(found, meaning)

    def refuse(self, option: "Option[Any]", because: str, hint: str = "") -> FaultrunError:
        """The error for a value that is readable and still impossible; the caller raises it."""
        nobody = Written(texts=(), layer=Layer.COMMAND_LINE, where=option.spelled)
        return option.wrong(self.given.get(option.name, nobody), because, hint)


@dataclass(eq=False)
class Option(Generic[_T]):
    """One option: what is to be known of it is stated in its row and nowhere else.

    ``name`` is its key in the config file and, in capitals, its ``FAULTRUN_`` variable. ``reads`` gives a
    text its meaning, or raises ValueError with the reason as a phrase. ``shown`` is the default in words
    where ``default`` does not tell it. ``example`` is a value that works, the default if none is named;
    beginning with ``-`` it is the whole use. ``dashes``: written so, as torchrun does. ``torch``: also read
    from torchrun's ``PET_`` variables.
    """

    metavar: str
    reads: Callable[[str], _T]
    _: KW_ONLY
    default: _T
    shown: str | None = None
    example: str = ""
    takes: Takes = Takes.VALUE
    short: str = ""
    dashes: bool = False
    torch: bool = False
    name: str = field(default="", init=False)
    section: type = field(default=object, init=False, repr=False)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.section = owner

    @overload
    def __get__(self, options: None, owner: type) -> "Option[_T]": ...

    @overload
    def __get__(self, options: Options, owner: type) -> _T: ...

    def __get__(self, options: Options | None, owner: type) -> "Option[_T] | _T":
        """The option itself from the class; else its value: UsageError, ConfigError from the config file."""
        if options is None:
            return self
        found = options.given.get(self.name)
        return self.default if found is None else self._value(found)

    @property
    def help(self) -> str:
        """What it does: the text that stands below its row."""
        return _texts_of(self.section).get(self.name, "")

    @property
    def spelled(self) -> str:
        """The name as the documentation writes it; ``_`` and ``-`` are the same to us."""
        return "--" + (self.name.replace("_", "-") if self.dashes else self.name)

    @property
    def term(self) -> str:
        """Every spelling and what follows, as the help page shows them."""
        return f"{f'-{self.short}, ' if self.short else ''}{self.spelled} {self.metavar}".rstrip()

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"FAULTRUN_{self.name.upper()}"

    @property
    def default_text(self) -> str:
        """The default as a person would write it."""
        return as_text(self.default) if self.shown is None else self.shown

    @property
    def meaning(self) -> str:
        """What it does, whether it may be given again, and its default, as the help page says it."""
        again = "  (repeatable)" if self.takes is Takes.LIST else ""
        return f"{self.help}{again}{f'  [{self.default_text}]' if self.default_text else ''}"

    @property
    def use(self) -> str:
        """A use that works, for the "try" line of an error."""
        value = self.example or self.default_text
        if self.takes is Takes.NOTHING or value.startswith("-"):
            return self.example or self.spelled
        return f"{self.spelled}={value}"

    def wrong(self, found: Written, because: str, hint: str = "") -> FaultrunError:
        """The error that blames the place where the value was written."""
        value = "true" if self.takes is Takes.NOTHING else self.use.replace("=", " ", 1).partition(" ")[2]
        kind: type[FaultrunError]
        match found.layer:
            case Layer.COMMAND_LINE:
                kind, joint, use = UsageError, "=", self.use
            case Layer.ENVIRONMENT:
                kind, joint, use = UsageError, "=", f"{self.variable}={value}"
            case Layer.CONFIG:
                kind, joint, use = ConfigError, ": ", f"{self.name}: {value}"
        shown = found.texts and self.takes is not Takes.NOTHING
        written = f"{found.where}{joint}{without_passwords(found.text)}" if shown else found.where
        if len(written) > _LONGEST_SHOWN:
            written = f"{written[: _LONGEST_SHOWN - 3]}..."
        return kind(f"{written} cannot be used", because=because, hint=hint or use)

    def blamed(self, found: Written, meaning: Callable[[str], V]) -> V:
        """What ``meaning`` makes of the text; its ValueError (ConfigError) becomes that place's error."""
        try:
            return meaning(found.text)
        except ValueError as error:
            raise self.wrong(found, str(error)) from None
        except ConfigError as error:
            raise self.wrong(found, f"{error.what}: {error.because}", error.hint) from None

    def _value(self, found: Written) -> _T:
        return self.blamed(found, self.reads)


class Repeatable(Option[tuple[V, ...]]):
    """An option that may be given again; a list from a higher layer replaces the lower one."""

    def __init__(self, metavar: str, reads: Callable[[str], V], **row: Any) -> None:
        super().__init__(metavar, lambda text: (reads(text),), default=(), takes=Takes.LIST, **row)

    def _value(self, found: Written) -> tuple[V, ...]:
        return self.blamed(found, lambda _: tuple(one for text in found.texts for one in self.reads(text)))


class OrNone(Option[str]):
    """A text that may be none, which is the default."""

    def __init__(self, metavar: str, reads: Callable[[str], str], *, example: str) -> None:
        super().__init__(metavar, or_none(reads, ""), default="", shown="none", example=example)


class Switch(Option[bool]):
    """True or False; alone it means True."""

    def __init__(self) -> None:
        super().__init__("True|False", switch, default=True, takes=Takes.SWITCH, example="False")


class Flag(Option[bool]):
    """True where it is named."""

    def __init__(self, **row: Any) -> None:
        super().__init__("", switch, default=False, shown="", takes=Takes.NOTHING, **row)


@cache
def _texts_of(section: type) -> Mapping[str, str]:
    """The texts below the rows, from the source: only help and docs read them. None without a source."""
    import ast
    import inspect

    try:
        (rows,) = ast.parse(inspect.getsource(section)).body
    except OSError:  # installed as bytecode: names, values and defaults are shown without their sentences
        return {}
    texts: dict[str, str] = {}
    assert isinstance(rows, ast.ClassDef)
    for row, below in pairwise(rows.body):
        match row, below:
            case ast.Assign(targets=[ast.Name(id=name)]), ast.Expr(value=ast.Constant(value=str(text))):
                texts[name] = " ".join(text.split())
    return texts
