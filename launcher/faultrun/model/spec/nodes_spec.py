"""What one node of several is told of the others: where they agree, and how long each waits for whom."""

from dataclasses import dataclass
from enum import Enum


class OnAgreementLoss(Enum):
    """What a node does when no etcd answers (``--on_agreement_loss``).

    HOLD: training goes on while every other node says that it hears nothing either. FENCE: it ends.
    """

    HOLD = "hold"
    FENCE = "fence"


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdAccess:
    """How etcd is reached. ``endpoints`` are ``host:port``; every member, so that each may be down.

    Files are empty where they are not needed; ``tls`` without any: the system's authorities are asked.
    The password is read from its file when it is needed, and is never part of a value.
    """

    endpoints: tuple[str, ...]
    tls: bool = False
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    username: str = ""
    password_file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementSpec:
    """How this node finds the others of its run.

    ``serve_at``: this node runs the etcd that all of them use, and it listens there (``host:port``); empty:
    another source does. ``node_rank`` orders nodes that start together; None: by arrival.
    ``lease_ttl_s``: a node that is silent for so long is lost. ``node_wait_s``: for a node that is missing.
    """

    etcd: EtcdAccess
    serve_at: str = ""
    node_rank: int | None = None
    lease_ttl_s: int = 10
    node_wait_s: float = 600.0
    on_loss: OnAgreementLoss = OnAgreementLoss.HOLD
