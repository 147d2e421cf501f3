"""What a rule has found: the place, and the words of ``findings.yaml``."""

from dataclasses import dataclass
from functools import cache
from importlib import resources

import yaml

from faultrun.text.yaml_tree import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class LintFinding:
    """One line for a person. ``line`` is 1-based."""

    line: int
    rule: str
    what: str
    why: str
    fix: str

    def told(self, file: str) -> str:
        """``FILE:LINE: RULE what · why · fix``."""
        return f"{file}:{self.line}: {self.rule} {self.what} · {self.why} · {self.fix}"


@cache
def wordings() -> dict[str, tuple[str, str, str]]:
    """What, why and fix by the name of the rule; behind a slash, the way in which it was broken."""
    text = resources.files("faultrun.manifests").joinpath("findings.yaml").read_text(encoding="utf-8")
    return {name: (what, why, fix) for name, (what, why, fix) in yaml.safe_load(text).items()}


def found(wording: str, where: Node, /, **values: object) -> LintFinding:
    """Make a finding at ``where``; ``values`` go into its words."""
    what, why, fix = (words.format(**values) for words in wordings()[wording])
    return LintFinding(line=where.line, rule=wording.partition("/")[0], what=what, why=why, fix=fix)
