"""A ``RunSpec`` with everything at its default; a test names only what it is about."""

from dataclasses import replace

from faultrun.model.spec.output import Logs
from faultrun.model.spec.run_spec import (
    Command,
    Framework,
    Recovery,
    Rendezvous,
    RestartPolicy,
    RunSpec,
    Supervision,
)
from faultrun.model.spec.windows import Windows
from faultrun.model.topology import RunId
from support.stories.story import NODE, topology


def a_spec(
    *argv: str,
    workers: int = 2,
    framework: Framework = Framework.PLAIN,
    policy: RestartPolicy | None = None,
    windows: Windows | None = None,
    **more: object,
) -> RunSpec:
    """A run of ``workers`` processes of ``argv`` on one node."""
    spec = RunSpec(
        run_id=RunId("calm-heron-3f7a"),
        node=NODE,
        topology=topology(workers),
        command=Command(prefix=argv or ("train",), script_args=(), shown=" ".join(argv) or "train.py"),
        framework=framework,
        rendezvous=Rendezvous(),
        supervision=Supervision(policy=policy or RestartPolicy(), windows=windows or Windows()),
        recovery=Recovery(),
        logs=Logs(),
    )
    return replace(spec, **more)  # type: ignore[arg-type]
