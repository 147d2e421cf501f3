"""``<file>.sha256`` as ``sha256sum`` writes it: a checksum for formats that have none."""

import re

from faultrun.checkpoints.format import Meter, Unreadable
from faultrun.checkpoints.names import base_name
from faultrun.checkpoints.reading import digest_matches, opened
from faultrun.model.checkpoint import Depth, Verdict

SUFFIX = ".sha256"
_MAX_BYTES = 64 << 10
_LINE = re.compile(r"\\?([0-9a-fA-F]{64})(?:[ \t]+\*?(.*?))?[ \t\r]*")


def stored_digest(path: str) -> str | None:
    """``sha256:<hex>`` from the sidecar of ``path``; None when there is none that can be understood.

    A sidecar cut by a crash proves nothing either way, so it is ignored.
    """
    try:
        with opened(path + SUFFIX) as file:
            text = file.read(0, min(file.size_bytes, _MAX_BYTES)).decode(errors="replace")
    except Unreadable:
        return None
    lines = [found for line in text.splitlines() if (found := _LINE.fullmatch(line))]
    named = [found for found in lines if base_name(found[2] or "") == base_name(path)]
    chosen = named or [found for found in lines if not found[2]]
    return f"sha256:{chosen[0][1].lower()}" if chosen else None


def compare(path: str, digest: str, meter: Meter) -> Verdict:
    """Whether the bytes of ``path`` have the ``digest`` of its sidecar. May raise Unreadable."""
    with opened(path, meter) as file:
        same = digest_matches(file, digest)
    why = "matches its .sha256" if same else "its bytes do not match its .sha256"
    return Verdict(whole=same, why=why, depth=Depth.CHECKSUM, digest=digest if same else "")
