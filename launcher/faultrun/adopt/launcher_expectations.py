"""What a script expects of a launcher and faultrun does not do: variables of MPI and Slurm, own processes."""

import ast
from collections.abc import Iterator

from faultrun.adopt.launch import AdoptedOption, Remark
from faultrun.adopt.script_source import ScriptSource

_FOREIGN = {
    **dict.fromkeys(("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"), "MPI"),
    **dict.fromkeys(("PMI_RANK", "PMI_SIZE"), "MPI"),
    **dict.fromkeys(
        ("PMIX_RANK", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"), "MPI"
    ),
    **dict.fromkeys(("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"), "Slurm"),
}
_OURS = frozenset({"RANK", "LOCAL_RANK", "RANK_ID"})
_INSTEAD = "faultrun sets RANK, LOCAL_RANK and WORLD_SIZE"
_SPAWNS = ("torch.multiprocessing.spawn", "torch_npu.multiprocessing.spawn")
_LIGHTNING = ("lightning.", "pytorch_lightning.", "lightning_fabric.")


def unmet(source: ScriptSource) -> Iterator[Remark]:
    """What the script would miss, each with its line."""
    texts = source.texts
    foreign = [name for name in texts if name in _FOREIGN]
    if foreign and not _OURS.intersection(texts):
        name = foreign[0]
        yield Remark(
            what=f"{texts[name]} reads {name}", why=f"{_FOREIGN[name]} does not start the workers: {_INSTEAD}"
        )
    option = source.option("local_rank")
    if option is not None and "LOCAL_RANK" not in texts:
        why = f"faultrun passes no such argument: {_INSTEAD}"
        yield Remark(what=f"{option.where} takes {option.spelled}", why=why)
    for call in source.calls:
        if source.dotted(call.func) in _SPAWNS:
            why = f"each worker would start them again: {_INSTEAD}, from which a function can take its rank"
            yield Remark(what=f"{source.where(call)} starts processes of its own", why=why)


def devices_of(source: ScriptSource) -> AdoptedOption | None:
    """How many workers a Lightning Trainer or Fabric starts by itself where no launcher does."""
    for call in source.calls:
        if not source.dotted(call.func).startswith(_LIGHTNING):
            continue
        for one in call.keywords:
            match one:
                case ast.keyword(arg="devices", value=ast.Constant(value=int(count))) if count > 1:
                    read = f"{source.where(one.value)} devices={count}"
                    return AdoptedOption(name="worker_num", values=(str(count),), read=read)
                case _:
                    pass
    return None
