"""What a run of several nodes was started with, as far as its plan tells people who look from outside."""

from dataclasses import dataclass

from faultrun.model.spec.run_spec import RestartPolicy, RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What a card and the status of the run need beside the plan; as it is at the node that wrote the plan.

    ``log_dir`` is absolute, and has the folders of all nodes where they share it (``node_folder``).
    ``handed_over``: something tells the script of its recovery point. ``worker_log_name`` is without rank.
    """

    policy: RestartPolicy = RestartPolicy()
    log_dir: str = ""
    checkpoint_dirs: tuple[str, ...] = ()
    handed_over: bool = True
    worker_log_name: str = "worker"

    @classmethod
    def of(cls, spec: RunSpec, log_dir: str) -> "RunSettings":
        """The settings of ``spec``, whose nodes have their folders in ``log_dir``."""
        return cls(
            policy=spec.supervision.policy,
            log_dir=log_dir,
            checkpoint_dirs=spec.recovery.checkpoint_dirs,
            handed_over=spec.recovery.handed_over,
            worker_log_name=spec.logs.worker_log_name,
        )
