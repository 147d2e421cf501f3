"""The configuration that ``accelerate config`` writes, as the options of ``accelerate launch``.

Source: accelerate/commands/config/config_args.py (ClusterConfig) and commands/launch.py of accelerate 1.15.
"""

from collections.abc import Iterator

from faultrun.errors import ConfigError
from faultrun.text.patch import MalformedText
from faultrun.text.yaml_reader import read
from faultrun.text.yaml_tree import MappingNode, ScalarNode

_TYPES = {"FSDP": "--use_fsdp", "DEEPSPEED": "--use_deepspeed", "MEGATRON_LM": "--use_megatron_lm"}
_SAME = ("num_processes", "num_machines", "mixed_precision", "gpu_ids", "main_process_port", "machine_rank")
_INNER = ("fsdp_config", "deepspeed_config")
_DYNAMO = "dynamo_config"


def configured_words(text: str, file: str) -> tuple[str, ...]:
    """The file's values as words. ConfigError where it is no mapping of YAML."""
    try:
        roots = read(text).roots
    except MalformedText as error:
        hint = "accelerate config --config_file writes one"
        raise ConfigError(f"{file}:{error.line} is not YAML", because=error.because, hint=hint) from None
    root = roots[0] if len(roots) == 1 else None
    if not isinstance(root, MappingNode):
        why = "it holds no mapping"
        raise ConfigError(f"{file} is no configuration of accelerate", because=why, hint="accelerate config")
    return tuple(_words(root))


def _words(root: MappingNode) -> Iterator[str]:
    plain = dict(_plain(root))
    for name in _SAME:
        value = plain.get(name, "")
        if value and value not in ("null", "all", "no") and (name, value) != ("machine_rank", "0"):
            yield f"--{name}={value}"
    if plain.get("distributed_type", "") in _TYPES:
        yield _TYPES[plain["distributed_type"]]
    if plain.get("use_cpu", "").lower() == "true":
        yield "--cpu"
    for section in _INNER:
        if isinstance((inner := root.get(section)), MappingNode):
            for name, value in _plain(inner):
                if value and value != "null":
                    yield f"--{name}={value}"
    if isinstance((dynamo := root.get(_DYNAMO)), MappingNode):
        for name, value in _plain(dynamo):
            if name in ("dynamo_backend", "dynamo_mode") and value.lower() not in ("no", "null"):
                yield f"--{name}={value}"


def _plain(node: MappingNode) -> Iterator[tuple[str, str]]:
    for key, value in node.entries:
        if isinstance(value, ScalarNode):
            yield key.value, value.value
