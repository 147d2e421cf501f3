"""Reports as report.json has them."""

import json
from typing import Any

from faultrun.observe.report.document import document
from support.stories.account_stories import account_of, lines_of, one_fault

ADDED = {"added": {"text": "", "note": "", "rows": [{"what": "", "count": 1}]}}
"""What a command may add to a report, without its words."""


def of_story() -> dict[str, Any]:
    """A run with one fault."""
    return as_json(document(account_of(lines_of(one_fault(resume_at=61))), {"run_id": "story"}))


def as_json(data: dict[str, Any]) -> dict[str, Any]:
    """``data`` as a reader of the file gets it."""
    found: dict[str, Any] = json.loads(json.dumps(data))
    return found
