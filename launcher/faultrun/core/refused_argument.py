"""Whether a script refused an argument that we gave it: our mistake, not the script's and no checkpoint's."""

import re
from collections.abc import Sequence

from faultrun.model.incident import Incident
from faultrun.model.plan import Plan

BAD_CONFIGURATION = 78
"""Exit code of a run whose restart cannot be expressed to the script."""

USAGE = "usage"
"""Name of the row for what argument parsers say (``core.signature_rows``)."""

_NAME = re.compile(r"-*[^=\s]+")


def refused_argument(incident: Incident, plan: Plan, templates: Sequence[str]) -> str:
    """The error for a person; empty unless the parser's own words name an option of ``templates``.

    Only an incarnation that resumes was given any. ``templates`` are those of ``--resume_arg``.
    """
    finding = incident.finding
    if finding is None or finding.name != USAGE or plan.point is None:
        return ""
    guilty = next((template for template in templates if _names(finding.line, template)), None)
    if guilty is None:
        return ""
    return (
        f"the script does not take an argument that a restart gives it: {guilty}\n"
        f"  because: {finding.line.strip()}\n"
        "  try:     --resume_arg with the option by which this script resumes; --dry-run shows what it gets"
    )


def _names(line: str, template: str) -> bool:
    """Whether ``line`` names the option: as it is written, or quoted without its dashes as absl does."""
    found = _NAME.match(template)
    if found is None:
        return False
    name = found[0]
    bare = name.lstrip("-")
    written = rf"(?<![\w/-]){re.escape(name)}(?![\w-])"
    quoted = rf"(['\"]-*){re.escape(bare)}\b"
    return re.search(rf"{written}|{quoted}", line) is not None
