"""MS_ENABLE_TFT comes out in the spelling that both of MindSpore's readings understand, or not at all."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultrun.errors import ConfigError
from faultrun.frameworks.mindio_tft import normalised
from support.machine.scripts import printed

SWITCHES = ["TTP:0", "TTP:1", "UCE:0", "UCE:1", "ARF:1", "TRE:1", "TRE:2", "TSP:1", "HCCE:1", "RSC:1"]


def as_the_parser_sees_it(text: str) -> dict[str, str]:
    """How half of MindSpore looks at it: ``_parser_tft_and_thm_env`` in mindspore/utils/utils.py."""
    items = text.replace("{", "").replace("}", "").strip().split(",")
    pairs = (item.split(":") for item in items if item)
    return {pair[0].strip(): pair[1].strip() for pair in pairs}


@pytest.mark.parametrize(
    ("written", "means"),
    [
        ("{UCE:1 TTP:1}", "{UCE:1,TTP:1}"),
        ("{UCE:1, TTP:1}", "{UCE:1,TTP:1}"),
        ("{TTP: 1}", "{TTP:1}"),
        ("{ TTP :1 , UCE : 0 }", "{TTP:1,UCE:0}"),
        ("TTP:1,UCE:1", "{TTP:1,UCE:1}"),
        ("{UCE:0,TTP:1}", "{UCE:0,TTP:1}"),
        ("{TTP:1,TTP:1}", "{TTP:1}"),
        ("{TTP:1,}", "{TTP:1}"),
        ("{TRE:2}", "{TRE:2}"),
        ("{ATO:1, ATO_THRESHOLD:20, ATO_PATH:./ato.json}", "{ATO:1,ATO_THRESHOLD:20,ATO_PATH:./ato.json}"),
        ("{}", "{}"),
        ("", ""),
        ("  ", ""),
    ],
)
def test_every_spelling_becomes_the_one_that_works(written: str, means: str) -> None:
    assert normalised(written) == means


@pytest.mark.parametrize(
    ("written", "because"),
    [
        ("{UEC:1}", "there is no UEC; known are TTP, UCE, ARF, TRE, TSP, HCCE, RSC, ATO, "),
        ("{ttp:1}", "there is no ttp; known are TTP"),
        ("{TTP}", "TTP has no value"),
        ("{TTP:}", "TTP has no value"),
        ("{TTP:10}", "TTP is 0 or 1, not 10"),
        ("{TTP:true}", "TTP is 0 or 1, not true"),
        ("{TRE:3}", "TRE is 0 or 1 or 2, not 3"),
        ("{TTP:1,TTP:0}", "TTP is 1 and 0"),
        ("{TTP:1}}", "'}' is not KEY:VALUE"),
        ("{ATO:1,TTP:1}", "MindSpore refuses ATO:1 together with TTP:1"),
        ("{ATO:1,ATO_THRESHOLD:9}", "ATO_THRESHOLD is a number from 10 on, not 9"),
        ("{ATO:1,ATO_PATH:ato.txt}", "ATO_PATH names a .json file, not ato.txt"),
        ('{"TTP":1}', 'there is no "TTP"'),
    ],
)
def test_what_mindspore_would_misread_is_refused(written: str, because: str) -> None:
    with pytest.raises(ConfigError) as caught:
        normalised(written)
    assert caught.value.what == f"MS_ENABLE_TFT={written} cannot be used"
    assert caught.value.because.startswith(because)


@given(
    chosen=st.lists(st.sampled_from(SWITCHES), min_size=1, unique_by=lambda switch: switch.split(":")[0]),
    gaps=st.lists(st.sampled_from([",", " ", ", ", " , ", "\t", ",\n"]), min_size=10, max_size=10),
    colon=st.sampled_from([":", " :", ": ", " : "]),
)
def test_both_of_mindspores_readings_agree(chosen: list[str], gaps: list[str], colon: str) -> None:
    written = "".join(switch.replace(":", colon) + gap for switch, gap in zip(chosen, gaps, strict=False))
    text = normalised("{" + written + "}")
    assert as_the_parser_sees_it(text) == dict(switch.split(":") for switch in chosen)
    # As most of MindSpore looks at it: mindspore/train/callback/_train_fault_tolerance.py.
    assert {switch for switch in SWITCHES if switch in text} == {*chosen}
    assert normalised(text) == text


@pytest.mark.mindspore
@pytest.mark.slow
def test_the_parser_above_reads_as_mindspores_does() -> None:
    """Asked in a process of its own; it prints what it hands on to the C++ side."""
    program = (
        "import os, sys\n"
        "import mindspore.utils.utils as utils\n"
        "utils.tft_register_config = lambda config: print('parsed', sorted(config.items()))\n"
        "for os.environ['MS_ENABLE_TFT'] in sys.argv[1:]:\n"
        "    utils._parser_tft_and_thm_env()\n"
    )
    texts = ["{UCE:1,TTP:1}", "{UCE:1 TTP:1}", "{TTP: 1}"]
    found = re.findall(r"^parsed (.*)$", printed(program, *texts), re.MULTILINE)
    assert found == [repr(sorted(as_the_parser_sees_it(text).items())) for text in texts]
