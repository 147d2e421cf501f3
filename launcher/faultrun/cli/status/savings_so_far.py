"""What a run has saved so far, for ``status`` and ``stop``: its journal is read once and then followed."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from faultrun.cli.options.assume_option import assumed
from faultrun.journal.append import FILE_NAME
from faultrun.journal.lines import JournalFollower
from faultrun.observe.account.accountant import Accountant
from faultrun.observe.account.savings import savings
from faultrun.observe.account.savings_words import assumptions_of, savings_document
from faultrun.observe.status.snapshot import account_now

_MOST_BYTES = 8_000_000
"""A longer journal takes longer than a user who asks for a moment's status waits; the report tells."""


class SavedSoFar:
    """Looks at the journal of ``folder``. ``typed`` is ``--assume``, None if it was not given."""

    def __init__(self, folder: Path, typed: str | None = None) -> None:
        self._path = folder / FILE_NAME
        self._typed = typed
        self._of: tuple[int, int] | None = None

    def look(self, record: Mapping[str, Any]) -> dict[str, Any] | None:
        """The savings as data; None without a journal, or with a very long one. UsageError: see ``assumed``.

        ``record`` is ``run.json``. Another run that began in the same folder is read from its beginning.
        """
        assumptions = assumed(assumptions_of(record), self._typed)
        with suppress(OSError):
            found = os.stat(self._path)  # noqa: PTH116  of the file that the follower would open
            if self._of != (found.st_dev, found.st_ino):
                self._of = None
                if found.st_size > _MOST_BYTES:
                    return None
                self._of = (found.st_dev, found.st_ino)
                self._follower, self._accountant = JournalFollower(self._path), Accountant()
            for line in self._follower.new_lines():
                self._accountant.take(line)
            account = account_now(self._accountant, self._path.parent, record)
            return savings_document(savings(account, assumptions))
        return None
