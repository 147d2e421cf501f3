"""What one of several nodes needs to agree with the others, made of its ``RunSpec``.

With this module all is loaded that a fault may need of several nodes, before there is one.
"""

import hashlib
from contextlib import suppress
from pathlib import Path

import faultrun.supervisor.stay.rendezvous_store  # noqa: F401  see above
from faultrun.cli.run.agreed_rules import rules_of
from faultrun.core.redact import without_secret_words
from faultrun.model.spec.nodes_spec import AgreementSpec, OnAgreementLoss
from faultrun.model.spec.run_spec import Command, RunSpec
from faultrun.model.topology import BootId
from faultrun.nodes.agent.agreement import MemberSetting, MemberWork
from faultrun.nodes.agent.served_etcd import EtcdKeeping
from faultrun.nodes.protocol.started_alike import ASKED, asked
from faultrun.nodes.values.lease import LeaseTimes
from faultrun.nodes.values.membership import NodeSettings
from faultrun.platforms.this_machine import KERNEL_BOOT
from faultrun.supervisor.reactor import RunClock
from faultrun.workers.forked_helper import Orders
from faultrun.workers.shared_deadline import SharedDeadline

ETCD = "etcd"
"""The folder of its data, in the log_dir of the node that serves it."""


def member_work(
    spec: RunSpec,
    agreement: AgreementSpec,
    log_dir: Path,
    boot: BootId,
    clock: RunClock,
    deadline: SharedDeadline,
) -> MemberWork:
    """What the member process of this supervisor does."""
    setting = MemberSetting(
        run_id=spec.run_id,
        terms=NodeSettings(
            node=spec.node,
            peer_addr="",
            times=LeaseTimes.of(agreement.lease_ttl_s, agreement.node_wait_s),
            machine=_machine(log_dir),
            asked=asked_of(spec),
            node_rank=agreement.node_rank,
            hold=agreement.on_loss is OnAgreementLoss.HOLD,
        ),
        host=spec.rendezvous.master_addr,
        boot=boot,
        etcd=agreement.etcd,
        rules=rules_of(spec),
        clock=clock,
        deadline=deadline,
        serves=bool(agreement.serve_at),
        ports=spec.rendezvous.ports,
    )

    def work(orders: Orders, words: int) -> None:
        from faultrun.nodes.agent.agent import take_part  # in the child: TLS and HTTP cost megabytes

        take_part(setting, orders, words)

    return work


def etcd_keeping(listen: str, folder: Path) -> EtcdKeeping:
    """What the helper does that serves etcd for all nodes at ``listen``, with its data in ``folder``."""

    def keeping(words: int, stop: int) -> None:
        from faultrun.nodes.agent.etcd_keeper import keep  # in the child, as above

        keep(listen, folder, words, stop)

    return keeping


def _machine(log_dir: Path) -> str:
    """Where this supervisor is: who holds the lock of the same folder, under the same kernel, replaces it."""
    with suppress(OSError):
        where = log_dir.stat()
        return f"{KERNEL_BOOT.read_text().strip()}:{where.st_dev}:{where.st_ino}"
    return ""


def asked_of(spec: RunSpec) -> str:
    """A digest of what every node of a run is started with."""
    policy = spec.supervision.policy
    parts = (
        _code(spec.command),
        without_secret_words(spec.command.shown),
        spec.framework.value,
        [entry.slots for entry in spec.topology.nodes],
        (policy.max_restarts, policy.window_s),
    )
    return asked(dict(zip(ASKED, parts, strict=True)))


def _code(command: Command) -> str:
    """A digest of SCRIPT itself where an interpreter reads a file: another node may have another text.

    Of another program it is the first file of Python that it is given, be it an interpreter or a wrapper.
    """
    _, *operands = command.prefix
    files = operands[-1:] or [word for word in command.script_args if word.endswith(".py")][:1]
    with suppress(OSError):
        return hashlib.sha256(Path(files[0]).read_bytes()).hexdigest() if files else ""
    return ""
