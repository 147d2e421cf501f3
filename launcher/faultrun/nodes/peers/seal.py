"""Lines that only nodes can write: a sender that knows the receiver's boot id has read it in the store.

A line is ``SEAL NONCE JSON``. The seal is an HMAC over the rest with a key that is made of the run's name
and of the boot of the node that is called; its answer has the same nonce, so an old one fits no new question.
It keeps strangers out who reach the port. It hides nothing.
"""

import hmac
import json
import os
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from faultrun.model.topology import BootId, RunId

LONGEST_LINE = 8192
_NONCE_BYTES = 12


@dataclass(frozen=True, slots=True)
class Seal:
    """What is said to, and by, the supervisor ``boot`` of a run."""

    run_id: RunId
    boot: BootId

    def question(self, says: dict[str, Any]) -> tuple[bytes, str]:
        """The line that asks, and its nonce. ValueError if it is longer than any that is read."""
        nonce = os.urandom(_NONCE_BYTES).hex()
        return self._line("asks", nonce, says), nonce

    def answer(self, nonce: str, says: dict[str, Any]) -> bytes:
        """The line that answers the question with ``nonce``."""
        return self._line("says", nonce, says)

    def read_question(self, line: bytes) -> tuple[dict[str, Any], str]:
        """What is asked, and its nonce. ValueError: no node of this run asks this supervisor."""
        return self._read("asks", line)

    def read_answer(self, line: bytes, nonce: str) -> dict[str, Any]:
        """What is answered. ValueError: not by whom was asked, or to another question."""
        says, answered = self._read("says", line)
        if answered != nonce:
            raise ValueError("an answer to another question")
        return says

    def _line(self, way: str, nonce: str, says: dict[str, Any]) -> bytes:
        text = json.dumps(says, separators=(",", ":"))
        if len(line := f"{self._sign(way, nonce, text)} {nonce} {text}\n".encode()) > LONGEST_LINE:
            raise ValueError(f"a line of {len(line)} bytes; the longest that is read has {LONGEST_LINE}")
        return line

    def _read(self, way: str, line: bytes) -> tuple[dict[str, Any], str]:
        sign, nonce, text = line.decode("ascii").rstrip("\n").split(" ", 2)
        if not hmac.compare_digest(sign.encode(), self._sign(way, nonce, text).encode()):
            raise ValueError("not sealed for this supervisor")
        return dict(json.loads(text)), nonce

    def _sign(self, way: str, nonce: str, text: str) -> str:
        key = sha256(f"faultrun peer\0{self.run_id}\0{self.boot}".encode()).digest()
        return hmac.new(key, f"{way}\0{nonce}\0{text}".encode(), sha256).hexdigest()
