"""What a manifest's or Dockerfile's container starts, and the command to write in its place."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from faultrun.adopt.launchers import ONE_NODE_HERE, SEVERAL_HINT
from faultrun.errors import ConfigError, UsageError
from faultrun.manifests.command import shell_of
from faultrun.manifests.workload import Container, Pod, Workload, workload_of
from faultrun.text.patch import MalformedText
from faultrun.text.yaml_reader import read
from faultrun.text.yaml_tree import MappingNode, text_at

_INSTRUCTION = re.compile(r"(?mi)^[ \t]*(ENTRYPOINT|CMD|WORKDIR)[ \t]+((?:\\\r?\n|[^\n])*)")
_NO_LAUNCH = "its image decides what it starts"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerStart:
    """A container's command. ``script`` is the shell's text where a shell starts it, else ``words`` count.

    ``work_dir`` is where it begins, ``devices`` the resource that it asks for with its number.
    """

    words: tuple[str, ...]
    shell: str
    script: str
    line: int
    name: str
    work_dir: str = ""
    devices: str = ""
    environment: tuple[tuple[str, str], ...] = ()


def manifest_start(text: str, file: str) -> ContainerStart:
    """The training container's command. ConfigError: no manifest, no command. UsageError: several nodes."""
    try:
        roots = read(text).roots
    except MalformedText as error:
        hint = f"faultrun lint {file}"
        raise ConfigError(f"{file}:{error.line} is not YAML", because=error.because, hint=hint) from None
    jobs = [workload_of(root) for root in roots if isinstance(root, MappingNode) and text_at(root, "kind")]
    if not (pods := [(job, pod) for job in jobs for pod in job.pods]):
        because = "no document in it has a pod template"
        hint = "a manifest of a job, a shell script, or a command in quotation marks"
        raise ConfigError(f"{file} starts no container", because=because, hint=hint)
    _check_one_node(pods, file)
    if not (found := [one for _, pod in pods for one in pod.trainers if one.words]):
        hint = 'faultrun adopt "the command of its image\'s Dockerfile"'
        raise ConfigError(f"{file} names no command", because=_NO_LAUNCH, hint=hint)
    return _start(found[-1])


def _check_one_node(pods: list[tuple[Workload, Pod]], file: str) -> None:
    counted = [
        (pod, count)
        for _, pod in pods
        if (count := prod(int(one.number or 0) for one in pod.counts))
        and any(one.words for one in pod.trainers)
    ]
    if (whole := sum(count for _, count in counted)) > 1:
        each = " + ".join(f"{count} of {pod.role or 'the template'}" for pod, count in counted)
        raise UsageError(f"{file} starts {whole} pods ({each})", because=ONE_NODE_HERE, hint=SEVERAL_HINT)


def _start(container: Container) -> ContainerStart:
    shell = shell_of(container.words)
    nodes = container.word_nodes
    asked = _devices(container)
    variables = ((text_at(one, "name"), text_at(one, "value")) for one in container.variables)
    return ContainerStart(
        words=container.words,
        shell=shell.name if shell else "",
        script=shell.script if shell else "",
        line=nodes[0].line,
        name=container.name,
        work_dir=text_at(container.node, "workingDir"),
        devices=asked,
        environment=tuple((name, value) for name, value in variables if name and value),
    )


def _devices(container: Container) -> str:
    for part in ("limits", "requests"):
        for name in container.devices:
            if number := text_at(container.node, "resources", part, name):
                return f"{name}: {number}"
    return ""


def dockerfile_start(text: str, file: str) -> ContainerStart:
    """The last ENTRYPOINT with the last CMD. ConfigError where there is neither."""
    found = {kind.upper(): (value, line) for kind, value, line in _instructions(text)}
    words = [*_exec_form(found.get("ENTRYPOINT", ("", 0))[0]), *_exec_form(found.get("CMD", ("", 0))[0])]
    if not words:
        because = "it has no ENTRYPOINT and no CMD"
        hint = 'faultrun adopt "the command that is given to docker run"'
        raise ConfigError(f"{file} starts nothing", because=because, hint=hint)
    shell = shell_of(tuple(words))
    line = (found.get("ENTRYPOINT") or found["CMD"])[1]
    named, script = (shell.name, shell.script) if shell else ("", "")
    folder, argv = found.get("WORKDIR", ("", 0))[0].strip(), tuple(words)
    return ContainerStart(
        words=argv, shell=named, script=script, line=line, name="the image", work_dir=folder
    )


def _instructions(text: str) -> Iterator[tuple[str, str, int]]:
    for found in _INSTRUCTION.finditer(text):
        yield found[1], re.sub(r"\\\r?\n", " ", found[2]).strip(), text.count("\n", 0, found.start()) + 1


def _exec_form(value: str) -> list[str]:
    """``["a", "b"]``, or what ``/bin/sh -c`` gets."""
    if value.startswith("["):
        try:
            words = json.loads(value)
        except ValueError:
            words = None
        if isinstance(words, list) and all(isinstance(one, str) for one in words):
            return [str(one) for one in words]
    return ["/bin/sh", "-c", value] if value else []


def command_lines(words: tuple[str, ...], work_dir: str) -> tuple[str, ...]:
    """The lines of YAML that replace ``command`` (and ``args``)."""
    listed = f"command: [{', '.join(json.dumps(word, ensure_ascii=False) for word in words)}]"
    return (f"workingDir: {json.dumps(work_dir)}", listed) if work_dir else (listed,)
