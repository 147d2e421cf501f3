"""The verbs beside ``run``, in the order of the help page, each with its sentence."""

VERBS = {
    "status": "How a run stands: ranks, steps, restarts left, what comes next; --watch.",
    "stop": "End a run: its workers save, then it exits.",
    "prestop": "Kubernetes preStop hook: the same, and wait for it.",
    "checkpoint-now": "Have the workers save without stopping.",
    "ckpt": "List, verify and choose checkpoints.",
    "config": "Set a value in a configuration file, or restore the originals.",
    "report": "Where the time of a run went, and what would lose less; as HTML, Markdown, JSON.",
    "incident": "Print a first-failure card again.",
    "recipes": "List the recipes, or show one.",
    "doctor": "What is wrong with this machine or container before a run.",
    "render": "Write a manifest, batch script or Dockerfile from a template.",
    "lint": "Check manifests: grace windows, labels, names, mounts; --fix mends.",
}

MODULES = {
    "status": "status.command",
    "stop": "control.stop",
    "prestop": "control.prestop",
    "checkpoint-now": "control.checkpoint_now",
    "ckpt": "ckpt.command",
    "config": "config",
    "report": "report",
    "incident": "incident",
    "recipes": "recipes",
    "doctor": "doctor.command",
    "render": "manifests.render",
    "lint": "manifests.lint",
}
"""Where each verb is, below ``faultrun.cli``."""
