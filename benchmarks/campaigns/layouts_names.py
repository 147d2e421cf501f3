"""How training codes name the files of a save, and how people write a number."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The names of a save's files, the one that the script is given first.

    ``{n}`` is the number as it is spelled, ``{N}`` six digits of it, ``{s}`` the stage, ``{d}`` the date of
    the start, ``{t}`` one of two in turn, ``{r}`` a number that comes again after three saves. ``late``: all
    but the first come after the next save has begun. ``beside``: what else the code writes. ``ranks``: each
    writes and loads a file of its own.
    """

    kind: str
    members: tuple[str, ...]
    late: bool = False
    beside: str = ""
    ranks: bool = False

    @property
    def numbered(self) -> bool:
        """Whether each save has names of its own."""
        return "{n}" in self.members[0] or "{N}" in self.members[0]

    @property
    def folder(self) -> int:
        """How many parts of the path lead to the folder that is one save; 0: there is none."""
        parts = self.members[0].split("/")
        return next((at + 1 for at, part in enumerate(parts[:-1]) if "{n}" in part or "{N}" in part), 0)


_NAMES = {
    "one file": """model_{n}.pt, step_{n}.pt, ckpt-{n}.pth, model{N}.pt, epoch={e}-step={n}.ckpt, {n}.pt,
        checkpoint_{n}.pt, weights.{n}.safetensors, iter_{n}.pth, ckpt_{n}.pth.tar""",
    "pair": """encoder_{n}.pt decoder_{n}.pt, netG_epoch_{n}.pth netD_epoch_{n}.pth, G_{n}.pth D_{n}.pth,
        model_step_{n}.pt optimizer_step_{n}.pt, policy_{n}.pt value_{n}.pt,
        step_{n}_actor.pt step_{n}_critic.pt, backbone-{n}.pth head-{n}.pth, model_{n}.pt model_{n}_ema.pt,
        gen_{n}.safetensors disc_{n}.safetensors, step_{n}.pt step_{n}.opt.pt""",
    "triple": """model{N}.pt ema_0.9999_{N}.pt opt{N}.pt, unet_{n}.pt text_encoder_{n}.pt vae_{n}.pt,
        model-{n}.pt ema-{n}.pt rng-{n}.pt""",
    "folder": """step_{n}/model.pt step_{n}/optimizer.pt,
        checkpoint-{n}/pytorch_model.bin checkpoint-{n}/optimizer.pt,
        {N}/model.pt {N}/opt.pt, epoch_{n}/encoder1.pt epoch_{n}/encoder2.pt,
        iter_{n}/weights.pt iter_{n}/state.pt iter_{n}/ema.pt,
        step_{n}/model.safetensors step_{n}/optim.pt""",
    "folder of folders": """step_{n}/unet/model.safetensors step_{n}/vae/model.safetensors
        step_{n}/text_encoder/model.safetensors, step_{n}/weights/model.pt step_{n}/optim/adam.pt""",
    "folders beside": "ckpt/step_{n}.pt ema/step_{n}.pt, model/step_{n}.pt optimizer/step_{n}.pt",
    "in place": """last.pt, last.pth last_ema.pth, G.pth D.pth, model.safetensors optim.safetensors,
        latest.ckpt""",
    "ring": "slot_{r}.pt",
    "moved": "last.pt, ckpt.0.pt",
    "copied on": "last.pt, model_1.pt, ckpt.0.pt",
    "stages": """stage{s}/step_{n}.pt, stage{s}/step_{n}/model.pt stage{s}/step_{n}/optimizer.pt,
        phase{s}/G_{n}.pth phase{s}/D_{n}.pth, fold{s}_step_{n}.pt, phase{s}-{n}.pt""",
    "slots": "ckpt{t}/state.pt",
    "dated": "{d}/step_{n}.pt, {d}/checkpoints/step_{n}/model.pt {d}/checkpoints/step_{n}/optimizer.pt",
    "shards": """step_{n}/rank_0.pt step_{n}/rank_1.pt, rank_0/step_{n}.pt rank_1/step_{n}.pt,
        model_{n}_rank0.pt model_{n}_rank1.pt""",
    "parts": """model_{n}_gpu0.pt model_{n}_gpu1.pt, step_{n}-00001-of-00002.pt step_{n}-00002-of-00002.pt,
        checkpoint_1_{n}-shard0.pt checkpoint_1_{n}-shard1.pt, gpu0_ckpt_{n}.pt gpu1_ckpt_{n}.pt,
        model_{n}_1.pt model_{n}_2.pt model_{n}_3.pt, part0/step_{n}.pt part1/step_{n}.pt,
        epoch_{e}_{n}_part0.pt epoch_{e}_{n}_part1.pt,
        m_{n}_tp0_pp0.pt m_{n}_tp0_pp1.pt m_{n}_tp1_pp0.pt m_{n}_tp1_pp1.pt,
        step_{n}_rank0.pt step_{n}_rank1.pt, step_{n}/rank_1.pt step_{n}/rank_2.pt,
        step_{n}/model.pt step_{n}/optim_states_rank0.pt step_{n}/optim_states_rank1.pt,
        {N}-00001-of-00003.pt {N}-00002-of-00003.pt {N}-00003-of-00003.pt""",
}
_LATE = [*_NAMES["pair"].split(",")[:5], *_NAMES["triple"].split(","), *_NAMES["folder"].split(",")[:3]]
_BESIDE = (
    ("pointer", "step_{n}.pt", "latest"),
    ("pointer", "step_{n}/model.pt step_{n}/opt.pt", "last_checkpoint"),
    ("link", "epoch={e}-step={n}.ckpt", "last.ckpt"),
    ("link", "model_{n}.pt", "latest.pt"),
    ("best beside", "ckpt/step_{n}.pt", "best/step_{n}.pt"),
    ("best beside", "step_{n}.pt", "best.pt"),
    ("results beside", "model_{n}.pt", "preds_{n}.pt"),
    ("results beside", "checkpoint.pt", "export_{n}.pt"),
    ("results beside", "step_{n}/model.pt step_{n}/opt.pt", "results.pt"),
)
LAYOUTS = (
    *(
        Layout(kind=kind, members=tuple(one.split()), ranks=kind == "shards")
        for kind, names in _NAMES.items()
        for one in names.split(",")
    ),
    *(Layout(kind="late members", members=tuple(one.split()), late=True) for one in _LATE),
    *(Layout(kind=kind, members=tuple(names.split()), beside=beside) for kind, names, beside in _BESIDE),
)
KINDS = tuple(dict.fromkeys(one.kind for one in LAYOUTS))
SPELLINGS: Mapping[str, tuple[int, Callable[[int], str]]] = {
    "30": (10, str),
    "000030": (10, "{:06d}".format),
    "1,000": (300, "{:,}".format),
    "1_000": (400, "{:_}".format),
    "1k": (1000, lambda n: f"{n // 1000}k"),
    "1.5k": (500, lambda n: f"{n / 1000:g}k"),
    "1e+06": (500_000, "{:g}".format),
    "1e+03": (500, "{:.1e}".format),
}
"""How people write a number, and how far apart saves are so that it shows."""
