"""The port at which the ranks of an incarnation meet, if rank 0 is on this node."""

from collections.abc import Callable
from contextlib import suppress

from faultrun.errors import UsageError
from faultrun.model.spec.run_spec import Rendezvous
from faultrun.platforms.ports import fresh_port, is_free
from faultrun.platforms.this_machine import address_of, is_address


class MasterPort:
    """One for each incarnation: what the one before left behind may still hold the last."""

    def __init__(self, rendezvous: Rendezvous, say: Callable[[str], None]) -> None:
        self._rendezvous = rendezvous
        self._say = say
        self._used: frozenset[int] = frozenset()
        self._ahead = 0

    def ahead(self) -> int:
        """A free one, which ``choose`` gives if it still is; 0 where the user named it, or none is known."""
        if self._rendezvous.port is not None and (self._rendezvous.fixed_port or not self._used):
            return 0
        with suppress(OSError):  # told when it is needed
            self._ahead = fresh_port(self._address(), self._used)
        return self._ahead

    def choose(self) -> int:
        """The user's port for the first incarnation or by ``--fixed_port``, a fresh one otherwise."""
        rendezvous, address = self._rendezvous, self._address()
        wanted = rendezvous.port
        if wanted is not None and (rendezvous.fixed_port or not self._used):
            if is_free(address, wanted):
                self._used |= {wanted}
                return wanted
            if rendezvous.fixed_port:
                raise UsageError(
                    f"port {wanted} of {rendezvous.master_addr} is taken",
                    because="another process listens there and --fixed_port allows no other",
                    hint=f"ss -ltnp 'sport = :{wanted}' names it; or leave out --fixed_port",
                )
            self._say(f"port {wanted} of {rendezvous.master_addr} is taken; using another")
        ahead = self._ahead
        port = ahead if ahead and is_free(address, ahead) else fresh_port(address, self._used)
        self._ahead, self._used = 0, self._used | {port}
        return port

    def _address(self) -> str:
        """The resolver is asked once a time: a name that nobody knows may cost it seconds."""
        host = self._rendezvous.master_addr
        try:
            return host if is_address(host) else address_of(host)
        except OSError as error:
            raise OSError(
                f"{host} has no address: {error.strerror}\n"
                f"  because: no resolver of this machine knows the name\n"
                "  try:     is --master_addr spelled right? one node can leave it out"
            ) from None
