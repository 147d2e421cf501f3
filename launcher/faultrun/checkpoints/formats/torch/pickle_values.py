"""What a pickle is read as: plain data, and names for what would have to be executed (``pickle_reader``)."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Global:
    """The name of a class or function, ``module.name``; it is not looked up."""

    name: str


class Opaque:
    """Bytes, sets, buffers and whatever else is of no use here."""


OPAQUE = Opaque()


@dataclass(slots=True, eq=False)
class Table:
    """A dict, as keys and values in turn; keys may be of any kind, so nothing is hashed."""

    flat: "list[Value] | None" = None

    def items(self) -> "Iterator[tuple[Value, Value]]":
        """Pairs in the order of insertion; a key may come twice, then the last counts."""
        flat = self.flat or []
        return zip(flat[::2], flat[1::2], strict=False)

    def get(self, name: str) -> "Value":
        """The last value of the key ``name``, OPAQUE if there is none."""
        found: Value = OPAQUE
        for key, value in self.items():
            if type(key) is str and key == name:
                found = value
        return found


@dataclass(slots=True, eq=False)
class Instance:
    """What calling ``maker`` with ``args`` would give, and the ``state`` it would be given then."""

    maker: "Value"
    args: "Value"
    state: "Value" = None


Value = (
    None | bool | int | float | str | list["Value"] | tuple["Value", ...] | Table | Instance | Global | Opaque
)
