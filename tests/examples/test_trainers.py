"""examples/09_transformers_trainer and 10_accelerate: whatever kills them, they end with the same bits."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from examples.codes import faultrun, final_line, killed_while, last_step, losses, resumed_at, undisturbed
from examples.launched import Run, launched
from support.machine.installed import need
from support.places import ROOT

pytestmark = [pytest.mark.torch, pytest.mark.slow]


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """An example, when it is struck, and what of its own checkpoints is written last."""

    package: str
    folder: str
    imports: tuple[str, ...]
    steps: int
    strikes_at: tuple[int, int]
    saves_after: tuple[int, ...]
    written_last: str
    gasps: str

    @property
    def words(self) -> tuple[str | Path, ...]:
        script = ROOT / "examples" / self.folder / "train.py"
        return (script, "--output_dir", "out", "--steps", str(self.steps), "--save_every", "8")

    @property
    def command(self) -> tuple[str | Path, ...]:
        return faultrun("--checkpoint_dir=out", *self.words, "--step_s=0.05")


TRAINER = Code(
    package="transformers",
    folder="09_transformers_trainer",
    imports=("transformers.trainer", "transformers.models.gpt2.modeling_gpt2"),
    steps=36,
    strikes_at=(12, 17),
    saves_after=(24, 32),
    written_last="trainer_state.json",
    gasps="_gasp/rank_*/checkpoint-*/optimizer.pt",
)
ACCELERATE = Code(
    package="accelerate",
    folder="10_accelerate",
    imports=("accelerate",),
    steps=64,
    strikes_at=(20, 25),
    saves_after=(32, 40, 48, 56),
    written_last="custom_checkpoint_0.pkl",
    gasps="gasp/rank_*/*.pt",
)


@pytest.fixture(scope="module", params=[TRAINER, ACCELERATE], ids=["trainer", "accelerate"])
def code(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Code, str]:
    """An example, and how it ends undisturbed."""
    one: Code = request.param
    need(one.package)
    script, *words = one.words
    cwd = tmp_path_factory.mktemp("undisturbed")
    return one, final_line(undisturbed(Path(script), *map(str, words), imports=one.imports, cwd=cwd))


def test_a_rank_killed_in_the_middle_and_one_killed_as_it_saves_change_no_bit(
    code: tuple[Code, str], tmp_path: Path
) -> None:
    one, expected = code

    def half_written() -> bool:
        folders = (tmp_path / "out" / f"checkpoint-{step}" for step in one.saves_after)
        return any(folder.is_dir() and not (folder / one.written_last).exists() for folder in folders)

    with launched(*one.command, cwd=tmp_path) as run:
        for life, step in enumerate(one.strikes_at):
            comes_to(run, life, step)
            if life == 0:
                run.kill(1)
        killed_while(run, 0, half_written, within_s=60)
        assert run.wait_for_the_end(within_s=120) == 0
        assert final_line(run.output(2).text) == expected
        for incident in (0, 1):
            assert max(losses(run, incident)) - resumed_at(run, incident) <= 1, "a step was lost"
            assert min(losses(run, incident + 1)) == resumed_at(run, incident) + 1
        if one is TRAINER:
            assert resumed_at(run, 1) in one.saves_after, "the survivor of a half written one saved its step"


def test_a_stop_and_a_torn_gasp_go_on_from_its_own_checkpoint(code: tuple[Code, str], tmp_path: Path) -> None:
    one, expected = code
    with launched(*one.command, cwd=tmp_path) as run:
        comes_to(run, 0, one.strikes_at[0])
        os.kill(run.supervisor, signal.SIGTERM)
        assert run.wait_for_the_end(within_s=60) == 143
        if one is TRAINER:
            saved = {line["step"] for line in run.journal("GaspSaved")}
            assert saved & {last_step(run, 0), last_step(run, 0) + 1}
    gasps = list((tmp_path / "out").glob(one.gasps))
    assert gasps
    for path in gasps:
        os.truncate(path, path.stat().st_size // 2)
    with launched(*one.command, cwd=tmp_path) as run:
        assert run.wait_for_the_end(within_s=120) == 0
        assert final_line(run.output(1).text) == expected
        assert min(losses(run, 1)) % 8 == 1
        if one is TRAINER:
            assert min(losses(run, 1)) == 9
            refused = [line for point in run.journal("RecoveryPointChosen") for line in point["refused"]]
            assert any("its optimizer.pt: has" in line["why"] for line in refused)


def comes_to(run: Run, life: int, step: int) -> None:
    run.wait_until(lambda: last_step(run, life) >= step, within_s=120)
