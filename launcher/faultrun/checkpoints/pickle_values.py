"""What a pickle is read as: plain data, and names in place of everything that would have to be executed."""

from collections.abc import Iterator


class Global:
    """The name of a class or function, ``module.name``; it is not looked up."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Opaque:
    """Bytes, sets, buffers and whatever else is of no use here. There is one: ``OPAQUE``."""

    __slots__ = ()


OPAQUE = Opaque()


class Table:
    """A dict, as keys and values in turn; keys may be of any kind, so nothing is hashed."""

    __slots__ = ("flat",)

    def __init__(self, flat: "list[Value] | None" = None) -> None:
        self.flat = flat

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


class Instance:
    """What calling ``maker`` with ``args`` would give, and the ``state`` it would be given then."""

    __slots__ = ("args", "maker", "state")

    def __init__(self, maker: "Value", args: "Value") -> None:
        self.maker = maker
        self.args = args
        self.state: Value = None

    @property
    def name(self) -> str:
        """The maker's name, "" when it is not a plain name."""
        return self.maker.name if isinstance(self.maker, Global) else ""


Value = (
    None | bool | int | float | str | list["Value"] | tuple["Value", ...] | Table | Instance | Global | Opaque
)
