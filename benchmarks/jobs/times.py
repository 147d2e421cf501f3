"""What the SDK notes of a rejoin, heard at once."""

from collections.abc import Callable


class Times(dict[str, float]):
    """In the place of the SDK's own dict; ``hear`` is told what it has come to, and when."""

    def __init__(self, hear: Callable[[str, float], object]) -> None:
        super().__init__()
        self._hear = hear

    def __setitem__(self, name: str, at_s: float) -> None:
        super().__setitem__(name, at_s)
        self._hear(name, at_s)

    def setdefault(self, name: str, at_s: float = 0.0) -> float:
        """As of a dict, and heard."""
        if name not in self:
            self[name] = at_s
        return self[name]
