"""At which step a save was written, by what was seen: files whose names say neither step nor epoch."""

from faultrun.checkpoints.saves.steps_of_saves import at_steps
from faultrun.model.observed.saves import SavesSeen, SeenSave
from support.checkpoints.entries import candidate


def steps(seen: SavesSeen, *names: str) -> dict[str, int | None]:
    """The steps of files that were written in this order."""
    files = [candidate(f"/ckpt/{name}", mtime_ns=at) for at, name in enumerate(names, 1)]
    return {one.path.removeprefix("/ckpt/"): one.global_step for one in at_steps(files, seen, ("/ckpt",))}


def seen(past: tuple[str, ...] = (), **saves: int) -> SavesSeen:
    """Saves ``m_NUMBER.pt``, each with its number and step."""
    found = (
        SeenSave(files=(f"/ckpt/{name}.pt",), step=step, number=int(name.partition("_")[2]))
        for name, step in saves.items()
    )
    return SavesSeen(saves=tuple(found), past=tuple(f"/ckpt/{name}" for name in past))


def test_a_file_is_of_the_step_at_which_it_was_seen_written_whatever_its_number_is() -> None:
    assert steps(seen(m_91=10, m_83=20), "m_91.pt", "m_83.pt") == {"m_91.pt": 10, "m_83.pt": 20}


def test_a_number_leads_on_from_those_that_were_seen() -> None:
    assert steps(seen(m_1=10, m_2=20), "m_1.pt", "m_2.pt", "m_4.pt")["m_4.pt"] == 40


def test_what_is_older_than_a_save_that_was_seen_is_led_nowhere_by_its_number() -> None:
    assert steps(seen(m_1=10, m_2=20), "m_4.pt", "m_1.pt", "m_2.pt")["m_4.pt"] is None
    assert steps(seen(m_1=10, m_2=20, past=("m_4.pt",)), "m_1.pt", "m_2.pt", "m_4.pt")["m_4.pt"] is None


def test_numbers_that_do_not_grow_with_the_steps_lead_nowhere() -> None:
    assert steps(seen(m_85=10, m_83=20), "m_85.pt", "m_83.pt", "m_91.pt")["m_91.pt"] is None


def test_what_saves_of_several_steps_tell_alike_is_a_total() -> None:
    files = [candidate(f"/ckpt/m_{number}.pt", global_step=200, mtime_ns=number) for number in (1, 2)]
    found = at_steps(files, seen(m_1=10, m_2=20), ("/ckpt",))
    assert [(one.global_step, one.seen_step) for one in found] == [(200, 10), (200, 20)]


def test_of_several_numbers_that_may_be_the_step_the_one_that_was_seen_is_it() -> None:
    saw = SavesSeen(
        saves=tuple(
            SeenSave(files=(f"/ckpt/m-{at}-0.0{at + 3}.pt",), step=at, number=at + 3) for at in (10, 30)
        )
    )
    assert steps(saw, "m-10-0.013.pt", "m-30-0.033.pt") == {"m-10-0.013.pt": 10, "m-30-0.033.pt": 30}
