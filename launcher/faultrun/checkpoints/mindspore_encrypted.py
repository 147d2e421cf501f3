"""``.ckpt`` files that MindSpore encrypted (``save_checkpoint(enc_key=...)``): only the key opens them.

One frame for each 64 MiB, little-endian: magic, in AES-GCM 16 bytes of tag,
the length of what follows, then the initialisation vector and the cipher text
with their lengths. What is inside nobody can prove without the key, but a
frame that is cut is torn. Measured with 2.10 (``_encrypt`` in the C++ core).
"""

import struct

from faultrun.checkpoints.format import Unreadable
from faultrun.checkpoints.reading import OpenFile
from faultrun.model.checkpoint import Depth, Verdict

_MAGIC_GCM, _MAGIC_CBC, _MAGIC_SM4 = 0x7F3A5ED8, 0x7F3A5ED9, 0x7F3A5EDA
_TAG_BYTES = {_MAGIC_GCM: 16, _MAGIC_CBC: 0, _MAGIC_SM4: 0}
_NUMBER = struct.Struct("<I")
_LONGEST_VECTOR = 64


def is_encrypted(file: OpenFile) -> bool:
    """Whether the first bytes are those of a frame."""
    return file.size_bytes >= _NUMBER.size and _number(file, 0) in _TAG_BYTES


def judge_encrypted(file: OpenFile) -> Verdict:
    """Torn where a frame is cut; else not to be verified. Raises Unreadable for "torn"."""
    at = count = 0
    while at < file.size_bytes:
        at = _end_of_frame(file, at)
        count += 1
    frames = f"{count} complete frame{'s' if count != 1 else ''}"
    why = f"cannot be verified: encrypted ({frames}; what is in them only its key shows)"
    return Verdict(whole=False, why=why, depth=Depth.NAME, unverifiable=True, provisional=True)


def _end_of_frame(file: OpenFile, at: int) -> int:
    tag_bytes = _TAG_BYTES.get(_number(file, at))
    if tag_bytes is None:
        raise Unreadable(f"is encrypted, and garbled at byte {at}")
    lengths_at = at + _NUMBER.size + tag_bytes
    end = lengths_at + _NUMBER.size + _number(file, lengths_at)
    vector_bytes = _number(file, lengths_at + _NUMBER.size)
    if vector_bytes > _LONGEST_VECTOR:
        raise Unreadable(f"is encrypted, and garbled at byte {lengths_at}")
    text_at = lengths_at + 2 * _NUMBER.size + vector_bytes
    if text_at + _NUMBER.size + _number(file, text_at) != end:
        raise Unreadable(f"is encrypted, and garbled at byte {text_at}")
    if end > file.size_bytes:
        raise Unreadable(f"is encrypted, and cut: ends at byte {file.size_bytes}, its last frame at {end}")
    return end


def _number(file: OpenFile, at: int) -> int:
    number: int = _NUMBER.unpack(file.read(at, _NUMBER.size))[0]
    return number
