"""What a rule has found, and the patches of the text that would mend it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """``text[start:end]`` becomes ``new``; character positions."""

    start: int
    end: int
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line for a person. ``line`` is 1-based; ``patches`` are empty where only a person can mend it."""

    line: int
    rule: str
    what: str
    why: str
    fix: str
    patches: tuple[Patch, ...] = ()

    def told(self, file: str) -> str:
        """``FILE:LINE: RULE what · why · fix``."""
        return f"{file}:{self.line}: {self.rule} {self.what} · {self.why} · {self.fix}"
