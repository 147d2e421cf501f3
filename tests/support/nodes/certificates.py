"""An authority of its own, for tests with TLS: certificates made by openssl."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")


@dataclass(frozen=True)
class Authority:
    """Signs certificates into ``folder``."""

    folder: Path

    def __post_init__(self) -> None:
        self._openssl("-x509", "-subj", "/CN=ca", "-keyout", self._key("ca"), "-out", self.certificate("ca"))

    def certificate(self, name: str) -> Path:
        return self.folder / f"{name}.pem"

    def issue(self, name: str, subject: str, *, address: str = "127.0.0.1") -> tuple[str, str]:
        """The files of a new certificate and of its key."""
        request = self.folder / f"{name}.csr"
        extra = self.folder / f"{name}.ext"
        extra.write_text(f"subjectAltName=IP:{address}\n")
        self._openssl("-subj", subject, "-keyout", self._key(name), "-out", request)
        signed = ("-CA", self.certificate("ca"), "-CAkey", self._key("ca"), "-CAcreateserial", "-days", "2")
        files = ("-in", request, "-extfile", extra, "-out", self.certificate(name))
        subprocess.run(["openssl", "x509", "-req", *signed, *files], check=True, capture_output=True)
        return str(self.certificate(name)), str(self._key(name))

    def _key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def _openssl(self, *words: str | Path) -> None:
        subprocess.run(["openssl", "req", *_CURVE, *words], check=True, capture_output=True)
