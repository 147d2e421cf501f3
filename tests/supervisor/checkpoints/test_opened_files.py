"""What a script opened before its first step, where others read checkpoints, too."""

from faultrun.model.observed.saves import BY_OTHERS
from faultrun.supervisor.checkpoints.opened_files import OpenedFiles


def test_what_is_read_while_ranks_live_is_read_by_the_script_and_told_once() -> None:
    opened = OpenedFiles()
    opened.begin(None)
    told = [opened.read(path, lives=True) for path in ("ck/a-1.pt", "ck/data.txt", "ck/a-1.pt", "ck/a-2.pt")]
    assert told == [True, False, False, True]
    assert (opened.paths, opened.at_start) == (("ck/a-1.pt", "ck/a-2.pt"), ())


def test_a_reader_before_any_rank_lives_is_another_and_nobody_can_tell_what_the_script_opens() -> None:
    opened = OpenedFiles()
    opened.read("ck/a-1.pt", lives=False)
    opened.begin(None)
    assert not opened.paths, "what was read before the plan was read by us"
    assert not opened.read("ck/a-1.pt", lives=False)
    assert not opened.read("ck/a-1.pt", lives=True)
    assert [opened.paths, opened.at_start] == [None, (BY_OTHERS,)]
    opened.begin(None)
    assert opened.read("ck/a-1.pt", lives=True)
    assert not opened.read("ck/a-2.pt", lives=False), "we look for a checkpoint"
    assert opened.paths == ("ck/a-1.pt",)
    opened.begin(None, shared=True)
    assert not opened.read("ck/a-1.pt", lives=True), "another run saves and reads here"
    assert [opened.paths, opened.at_start] == [None, (BY_OTHERS,)]
