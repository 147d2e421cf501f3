"""Words of which one stands in every text that a regular expression matches: a quick look before a slow one.

Each dead rank's last log lines are asked for dozens of patterns while all nodes wait.
"""

import re
from functools import lru_cache

_SHORTEST = 3
_TOKEN = re.compile(
    r"(?P<repeat>[*+?]|\{\d*,?\d*\})"
    r"|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])"
    r"|\\(?P<quoted>[^\w\s])"
    r"|(?P<coded>\\[xuUN0-9])"
    r"|(?P<flags>\(\?[aimsu]+\))"
    r"|(?P<any>\\.|[.^$])"
    r"|(?P<open>\((?:\?(?:P<\w+>|[aimsu-]*:))?(?!\?))"
    r"|(?P<odd>\(\?)"
    r"|(?P<close>\))|(?P<or>\|)"
    r"|(?P<plain>[^\\\[(){.^$|*+?]+|.)",
    re.DOTALL,
)
_ALIKE = {0x130: "i", 0x131: "i"}
"""Without regard to case ``re`` takes these for an i, and ``casefold`` does not."""


def folded(text: str) -> str:
    """``text`` as ``may_be_in`` wants it."""
    return text.casefold() if text.isascii() else text.translate(_ALIKE).casefold()


def may_be_in(pattern: str, text: str) -> bool:
    """False: no line of the ``folded`` text matches ``pattern``. True says nothing."""
    words = needles(pattern)
    return not words or any(word in text for word in words)


@lru_cache(maxsize=512)
def needles(pattern: str) -> tuple[str, ...]:
    """One of them is in each ``folded`` text that ``pattern`` matches; none: nobody knows."""
    around, group = list[_Group](), _Group()
    for token in _TOKEN.finditer(pattern):
        kind = token.lastgroup or ""
        match kind:
            case "coded" | "odd":
                return ()
            case "flags" if token.start():  # Python 3.10 allows it, and repeats what stands before it
                return ()
            case "plain" | "quoted":
                group.reads(token[kind])
            case "repeat":
                group.may_lack_it()
            case "open":
                around.append(group)
                group = _Group()
            case "close" if around:
                inner, group = group, around.pop()
                group.holds(inner.words())
            case "or":
                group.or_else()
            case _:
                group.breaks()
    found = group.words()
    return tuple(map(folded, found)) if not around and _shortest(found) >= _SHORTEST else ()


class _Group:
    """What is between two parentheses: for each branch the words of which one is in all that it matches."""

    def __init__(self) -> None:
        self._branches: list[tuple[str, ...]] = []
        self._best: tuple[str, ...] = ("",)
        self._newest: tuple[str, ...] = ("",)
        self._reads = False

    def reads(self, characters: str) -> None:
        """More behind those before."""
        if not self._reads:
            self.breaks()
        self._newest, self._reads = (self._newest[0] + characters,), True

    def may_lack_it(self) -> None:
        """What came last may be missing, or be there more than once."""
        self._newest = (self._newest[0][:-1],) if self._reads else ("",)
        self.breaks()

    def holds(self, words: tuple[str, ...]) -> None:
        """One of these, from a group within this one."""
        self.breaks()
        self._newest = words

    def breaks(self) -> None:
        """What comes now is not known."""
        self._best = max(self._best, self._newest, key=_shortest)
        self._newest, self._reads = ("",), False

    def or_else(self) -> None:
        """Another branch begins."""
        self.breaks()
        self._branches.append(self._best)
        self._best = ("",)

    def words(self) -> tuple[str, ...]:
        """One of these is in all that it matches."""
        self.or_else()
        return tuple(word for branch in self._branches for word in branch)


def _shortest(words: tuple[str, ...]) -> int:
    return min(map(len, words))
