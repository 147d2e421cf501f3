"""What ``EtcdAccess`` means for a connection: address, TLS context, password, and who is asked first."""

import ssl
import zlib
from pathlib import Path

from faultrun.errors import UsageError
from faultrun.model.spec.nodes_spec import EtcdAccess


def host_and_port(endpoint: str) -> tuple[str, int]:
    """``host:port`` or ``[v6]:port`` as a socket wants it."""
    host, _, port = endpoint.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def in_order_of(access: EtcdAccess, name: str) -> tuple[str, ...]:
    """The endpoints, beginning elsewhere for another ``name``: a thousand nodes do not all ask the first."""
    first = zlib.crc32(name.encode()) % len(access.endpoints)
    return access.endpoints[first:] + access.endpoints[:first]


def tls_context(access: EtcdAccess) -> ssl.SSLContext | None:
    """For TLS with the files of ``access``, None without TLS. UsageError: one of them cannot be used."""
    if not access.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=access.ca_file or None)
        if access.cert_file:
            # An empty password: OpenSSL would ask the terminal for that of an encrypted key, for ever.
            context.load_cert_chain(access.cert_file, access.key_file or None, password="")
    except OSError as error:
        files = ", ".join(filter(None, (access.ca_file, access.cert_file, access.key_file)))
        what = "the certificates for etcd cannot be used"
        hint = "PEM files that this user can read, and a key without a passphrase"
        raise UsageError(what, because=f"{files}: {error.strerror or error}", hint=hint) from error
    return context


def password(access: EtcdAccess) -> str:
    """What the password file says now, without the line's end. UsageError: it cannot be read."""
    try:
        return Path(access.password_file).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        because = f"{access.password_file}: {getattr(error, 'strerror', None) or error}"
        hint = "--rdzv-conf=username=NAME,password_file=FILE with a file that this user can read"
        raise UsageError("the password for etcd cannot be read", because=because, hint=hint) from error
