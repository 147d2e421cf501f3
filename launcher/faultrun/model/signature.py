"""A row of the table of known failures; the table is ``core/signature_rows.py`` and the user's own file."""

import re
from dataclasses import dataclass

from faultrun.model.evidence import FaultClass, Finding

_LINE_CHARS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One known failure. ``pattern`` is searched in an exception's ``Kind: message`` or in one log line.

    ``says`` is what a person is told before the line that was found,
    ``source`` where it is known from. ValueError: not a regular expression.
    """

    name: str
    fault_class: FaultClass
    pattern: str
    says: str
    source: str
    hint: str = ""

    def __post_init__(self) -> None:
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise ValueError(f"{self.name}: {self.pattern!r} is not a regular expression: {error}") from error

    def found_in(self, text: str) -> Finding | None:
        """The finding, if ``text`` matches."""
        if re.search(self.pattern, text) is None:
            return None
        return Finding(
            name=self.name,
            fault_class=self.fault_class,
            says=self.says,
            line=text[:_LINE_CHARS],
            hint=self.hint,
        )
