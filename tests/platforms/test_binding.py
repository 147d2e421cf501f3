"""Processors and NUMA nodes for workers: msrun's grammars, and a fair share of the machine."""

import hashlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultrun.model.spec.run_spec import Binding, Hold
from faultrun.platforms.binding import (
    BindFile,
    NotOurs,
    Processors,
    expand,
    plan_binding,
    read_bind_core,
    read_bind_numa,
    share_cores,
    usable_processors,
)


def machine(*nodes: tuple[int, ...]) -> Processors:
    return Processors(
        allowed=tuple(sorted(cpu for cpus in nodes for cpu in cpus)), nodes=dict(enumerate(nodes))
    )


TWO_NODES = machine((0, 1, 2, 3), (4, 5, 6, 7))


@st.composite
def machines(draw: st.DrawFn) -> Processors:
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    cpus = draw(st.permutations(range(sum(sizes))))
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    nodes = [tuple(sorted(cpus[start : start + size])) for start, size in zip(starts, sizes, strict=True)]
    return machine(*nodes)


@settings(max_examples=80)
@given(machine=machines(), workers=st.integers(1, 30))
def test_cores_are_all_shared_without_overlap_and_none_goes_empty(machine: Processors, workers: int) -> None:
    shares = share_cores(workers, machine)
    if workers > len(machine.allowed):
        assert shares == ()
        return
    assert len(shares) == workers
    assert all(shares)
    assert sorted(cpu for share in shares for cpu in share) == list(machine.allowed)


@settings(max_examples=80)
@given(workers=st.integers(1, 8), size=st.integers(8, 12), count=st.integers(1, 4))
def test_workers_no_fewer_than_numa_nodes_stay_each_on_one(workers: int, size: int, count: int) -> None:
    nodes = [tuple(range(index * size, (index + 1) * size)) for index in range(count)]
    shares = share_cores(workers, machine(*nodes))
    for share in shares:
        homes = {cpu // size for cpu in share}
        assert len(homes) == 1 or workers < count
    lengths = [len(share) for share in shares]
    if workers % count == 0:
        assert max(lengths) - min(lengths) <= 1


def test_four_workers_on_two_nodes_get_half_a_node_each() -> None:
    assert share_cores(4, TWO_NODES) == ((0, 1), (2, 3), (4, 5), (6, 7))


def test_processors_outside_every_known_node_are_still_shared() -> None:
    partly_known = Processors(allowed=(0, 1, 2, 3), nodes={0: (0, 1)})
    assert share_cores(2, partly_known) == ((0, 1), (2, 3))


def test_this_machine_is_read_from_the_kernel() -> None:
    found = usable_processors()
    assert found.allowed == tuple(sorted(os.sched_getaffinity(0)))
    assert all(set(cpus) <= set(found.allowed) for cpus in found.nodes.values())


def test_only_processors_that_we_may_use_count_and_nodes_without_any_are_left_out(tmp_path: Path) -> None:
    ours = sorted(os.sched_getaffinity(0))
    for name, cpulist in (
        ("node0", "900-901"),
        ("node10", str(ours[0])),
        ("node2", f"{ours[0]},905"),
        ("node3", ""),
    ):
        folder = tmp_path / "devices/system/node" / name
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(f"{cpulist}\n")
    assert list(usable_processors(tmp_path).nodes.items()) == [(2, (ours[0],)), (10, (ours[0],))]


def test_a_machine_without_numa_files_has_no_nodes(tmp_path: Path) -> None:
    assert usable_processors(tmp_path).nodes == {}


def test_bind_core_true_ties_every_worker_and_tells_mindspore_as_msrun_does() -> None:
    bound = plan_binding(True, False, [0, 1], TWO_NODES)
    assert bound.binding == Binding(
        hold=Hold.CORES,
        cpus=((0, 1, 2, 3), (4, 5, 6, 7)),
        memory_nodes=((), ()),
        worker_env=((("MSRUN_CPU_LIST", "[0, 1, 2, 3]"),), (("MSRUN_CPU_LIST", "[4, 5, 6, 7]"),)),
    )
    assert bound.notes == ()


def test_bind_numa_true_gives_each_worker_a_node_of_its_own() -> None:
    binding = plan_binding(False, True, [0, 1], TWO_NODES).binding
    assert binding.hold is Hold.NUMA
    assert binding.memory_nodes == ((0,), (1,))
    assert binding.cpus == ((0, 1, 2, 3), (4, 5, 6, 7))


def test_too_few_nodes_or_processors_bind_nothing_and_say_so_as_in_msrun() -> None:
    nodes = plan_binding(False, True, [0, 1, 2], TWO_NODES)
    assert nodes.binding == Binding()
    assert "2 NUMA nodes for 3 workers" in nodes.notes[0]
    cores = plan_binding(True, False, list(range(9)), TWO_NODES)
    assert cores.binding == Binding()
    assert "8 processors for 9 workers" in cores.notes[0]


def test_cores_by_device_follow_the_physical_device_of_each_rank() -> None:
    core = read_bind_core('{"scheduler": ["7"], "device3": ["0-1", "4"], "device1": ["2,3"]}')
    binding = plan_binding(core, False, [1, 3], TWO_NODES).binding
    assert binding.cpus == ((2, 3), (0, 1, 4))
    assert binding.scheduler_cpus == (7,)
    assert binding.worker_env == ((), ())


def test_a_rank_without_an_entry_is_left_to_the_kernel_and_pointed_out() -> None:
    bound = plan_binding(read_bind_core('{"device0": ["0"]}'), False, [0, 1, 2], TWO_NODES)
    assert bound.binding.cpus == ((0,), (), ())
    assert bound.notes == ("--bind_core names no processor for local rank 1, 2: the kernel chooses",)


def test_numa_decides_over_memory_and_cores_over_processors() -> None:
    core, numa = (
        read_bind_core('{"device0": ["0-1"]}'),
        read_bind_numa('{"device0": ["1"], "scheduler": ["0"]}'),
    )
    binding = plan_binding(core, numa, [0], TWO_NODES).binding
    assert (binding.hold, binding.cpus, binding.memory_nodes) == (Hold.NUMA, ((0, 1),), ((1,),))
    assert (binding.scheduler_cpus, binding.scheduler_memory_nodes) == ((0, 1, 2, 3), (0,))


@pytest.mark.parametrize(
    ("core", "numa", "option", "because"),
    [
        (
            '{"device0": ["8"]}',
            "False",
            "bind_core",
            "processor 8 is not ours to use (there are: 0,1,2,3,4,5,6,7)",
        ),
        ("False", '{"device0": ["2"]}', "bind_numa", "NUMA node 2 is not ours to use (there are: 0,1)"),
    ],
)
def test_a_number_the_machine_lacks_is_refused(core: str, numa: str, option: str, because: str) -> None:
    with pytest.raises(NotOurs) as caught:
        plan_binding(read_bind_core(core), read_bind_numa(numa), [0], TWO_NODES)
    assert (caught.value.option, str(caught.value)) == (option, because)


def bind_file(tmp_path: Path, content: object) -> str:
    path = tmp_path / "bind.json"
    path.write_text(json.dumps(content))
    return str(path)


def test_a_bind_file_ties_processors_and_memory_and_is_shown_to_mindspore(tmp_path: Path) -> None:
    path = bind_file(
        tmp_path,
        {
            "bind_config": {
                "bind_cpu_mode": "cpu",
                "bind_memory_mode": "numa",
                "actor_thread_fix_bind": True,
            },
            "bind_cpu": {
                "device0": {"main": "0-1", "minddata": "2-3"},
                "device_1": {"main": "4"},
                "scheduler": None,
            },
            "bind_memory": {"device0": 0, "device_1": "0-1"},
        },
    )
    wish = read_bind_numa(path)
    assert isinstance(wish, BindFile)
    bound = plan_binding(True, wish, [0, 1], TWO_NODES)
    digest = hashlib.sha256((tmp_path / "bind.json").read_bytes()).hexdigest()
    told = (("MSRUN_BIND_FILE", path), ("MSRUN_BIND_FILE_HASH", digest))
    assert bound.binding == Binding(
        hold=Hold.NUMA, cpus=((0, 1), (4,)), memory_nodes=((0,), (0, 1)), worker_env=(told, told)
    )


def test_a_bind_file_by_numa_node_ties_all_its_processors(tmp_path: Path) -> None:
    path = bind_file(
        tmp_path,
        {
            "bind_config": {"bind_cpu_mode": "numa"},
            "bind_cpu": {"device0": 1, "scheduler": "0"},
            "bind_memory": {"device0": 0},
        },
    )
    binding = plan_binding(False, read_bind_numa(path), [0], TWO_NODES).binding
    assert binding.cpus == ((4, 5, 6, 7),)
    assert binding.memory_nodes == ((),)
    assert binding.scheduler_cpus == (0, 1, 2, 3)
    assert binding.hold is Hold.CORES


def test_a_file_of_the_older_form_is_a_table(tmp_path: Path) -> None:
    assert read_bind_numa(bind_file(tmp_path, {"device0": ["0"]})) == {0: (0,)}


def test_the_words_of_msrun_are_read_in_any_case() -> None:
    assert read_bind_core("TRUE") is True
    assert read_bind_core("false") is False
    assert read_bind_numa("True") is True


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("yes", "neither True nor False nor JSON"),
        ("[1]", "not a JSON object"),
        ('{"gpu0": ["0"]}', "'gpu0' is neither deviceN nor scheduler"),
        ('{"device0": "0-3"}', "device0 needs a list of texts"),
        ('{"device0": [0]}', "device0 needs a list of texts"),
        ('{"device0": ["3-1"]}', "runs backwards"),
        ('{"device0": ["a"]}', "not a list such as 0-3"),
        ('{"device0": ["1,,2"]}', "not a list such as 0-3"),
        ('{"bind_config": {}}', "belongs to --bind_numa"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(text: str, because: str) -> None:
    with pytest.raises(ValueError, match=because):
        read_bind_core(text)


@pytest.mark.parametrize(
    ("content", "because"),
    [
        ({"bind_config": []}, "bind_config is not a JSON object"),
        ({"bind_config": {"bind_cpu_mode": "core"}}, "bind_cpu_mode is 'core'"),
        ({"bind_config": {"bind_memory_mode": "cpu"}}, "bind_memory_mode is 'cpu'"),
        ({"bind_config": {"bind_cpu_mode": "cpu"}, "bind_cpu": {"device0": "0"}}, "device0 needs an object"),
        (
            {"bind_config": {"bind_cpu_mode": "numa"}, "bind_cpu": {"device0": True}},
            "device0 needs a NUMA node",
        ),
        ({"bind_config": {"bind_memory_mode": "numa"}, "bind_memory": {"dev": 1}}, "'dev' is neither"),
    ],
)
def test_a_bind_file_that_makes_no_sense_is_refused(tmp_path: Path, content: object, because: str) -> None:
    with pytest.raises(ValueError, match=because):
        read_bind_numa(bind_file(tmp_path, content))


def test_a_bind_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No such file"):
        read_bind_numa(str(tmp_path / "none.json"))


@settings(max_examples=40)
@given(numbers=st.sets(st.integers(0, 60), min_size=1))
def test_the_kernels_list_format_is_expanded(numbers: set[int]) -> None:
    assert expand(",".join(str(number) for number in numbers)) == tuple(sorted(numbers))
    low, high = min(numbers), max(numbers)
    assert expand(f"{low}-{high}") == tuple(range(low, high + 1))
