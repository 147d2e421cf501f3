"""What a rule has found, and the patches of the text that would mend it."""

from dataclasses import dataclass

from faultrun.text.patch import Patch


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
