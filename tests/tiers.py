"""What ``make test`` leaves to ``make test-all``, and which tests hold the same promise meanwhile.

A test is left only if a test on a lower floor fails with the same mistake, or if it is another cell of a matrix
whose diagonal stays.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Tests by their ids, or by what these begin with: a file, a function, a function with ``[parameter``."""

    tests: tuple[str, ...]
    held_by: tuple[str, ...]

    def has(self, test_id: str) -> bool:
        """Whether the test is one of these."""
        return any(_is_of(test_id, one) for one in self.tests)


EXHAUSTIVE = (
    # Campaigns: each has its judge's tests, and the faults that it draws are whole runs of their own.
    Left(
        tests=(
            "benchmarks/tests/test_codes.py::test_a_training_is_harmed_started_again_and_compared",
            "benchmarks/tests/test_everything.py::test_faults_over_a_training_break_no_promise",
            "benchmarks/tests/test_hostile.py::test_hostile_histories_break_no_promise",
            "benchmarks/tests/test_layouts.py::test_ten_thousand_of_the_zoo_get_what_they_should",
            "benchmarks/tests/test_loops.py::test_thirty_of_the_zoo_end_as_if_nobody_had_died",
            "benchmarks/tests/test_matrix.py::test_the_right_cause_the_right_rank_and_the_right_decision[disk",
            "benchmarks/tests/test_matrix.py::test_the_right_cause_the_right_rank_and_the_right_decision[exit",
            "benchmarks/tests/test_matrix.py::test_the_right_cause_the_right_rank_and_the_right_decision[log",
            "benchmarks/tests/test_matrix.py::test_the_right_cause_the_right_rank_and_the_right_decision[raise",
            "benchmarks/tests/test_pauses.py::test_a_pause_of_some_seconds_is_warned_of_at_most",
            "benchmarks/tests/test_pauses.py::test_a_hang_is_warned_of_and_replaced_at_the_limit",
            "tests/faults/saves/test_gasp_campaign.py::test_a_seeded_piece_of_the_campaign_keeps_every_promise",
        ),
        held_by=(
            "tests/faults/processes/test_killed_ranks.py::test_any_rank_may_be_killed_the_first_too",
            "tests/faults/recovery/test_hangs.py::test_as_it_comes_a_silence_is_warned_of_with_all_stacks_and_nobody_is_killed",
            "tests/faults/recovery/test_survivors_stay.py::test_survivors_keep_their_processes_through_one_death_after_the_other",
            "tests/checkpoints/formats/torch/test_killed_while_saving.py",
            "benchmarks/tests/test_layouts.py::test_a_seeded_piece_of_the_zoo_gets_what_it_should",
            "benchmarks/tests/test_loops.py::test_five_of_the_zoo_end_as_if_nobody_had_died",
            "tests/sdk/torch/test_dying_gasp.py",
        ),
    ),
    # Examples: three stay, one of them MindSpore's. What the others show of the SDK has trainings of its own.
    Left(
        tests=(
            "tests/examples/test_chaos.py",
            "tests/examples/test_deepspeed.py",
            "tests/examples/test_fsdp2_dcp.py",
            "tests/examples/test_lightning.py",
            "tests/examples/test_mindio_ttp.py",
            "tests/examples/test_mindspore_lenet.py",
            "tests/examples/test_resnet.py",
            "tests/examples/test_several_nodes.py",
            "tests/examples/test_survivors_stay.py",
            "tests/examples/test_tensorflow.py",
            "tests/examples/test_trainers.py",
            "tests/examples/test_uce.py",
            "tests/examples/test_uce_repair.py",
        ),
        held_by=(
            "tests/examples/test_torch_ddp.py",
            "tests/examples/test_pangu.py",
            "tests/examples/test_pytorch_resnet.py",
            "tests/sdk/accelerate/test_ways_to_save.py",
            "tests/sdk/lightning/test_lightning.py::test_from_any_place_that_is_saved_training_ends_as_if_undisturbed",
            "tests/sdk/mindspore/test_dying_gasp.py",
            "tests/sdk/torch/repair/test_repair.py::test_memory_of_a_rank_of_ddp_may_be_bad_in_any_phase_of_a_step",
            "tests/sdk/torch/state/test_shards.py",
            "tests/sdk/transformers/test_dying_gasp.py",
            "tests/checkpoints/formats/test_deepspeed.py",
            "tests/checkpoints/formats/test_tensorflow.py",
            "tests/configs/recipes/test_examples.py",
        ),
    ),
    # Several nodes: eight faults stay. The protocol is explored in tests/model, judged in tests/nodes/protocol.
    Left(
        tests=(
            "tests/faults/nodes/test_copies.py",
            "tests/faults/nodes/test_faults.py::test_a_full_disk_refuses_the_save_of_a_shard_and_then_costs_its_node_its_place",
            "tests/faults/nodes/test_hosts.py::test_the_first_node_serves_etcd_until_all_know_the_end",
            "tests/faults/nodes/test_hosts.py::test_a_rank_that_dies_anywhere_has_all_drain_and_restart[b]",
            "tests/faults/nodes/test_hosts.py::test_the_place_of_a_host_that_dies_goes_to_a_spare[False]",
            "tests/faults/nodes/test_hosts.py::test_a_supervisor_that_is_killed_comes_back_into_the_same_run",
            "tests/faults/nodes/test_shrink.py::test_without_a_lost_host_and_with_it_again_it_is_the_same_training",
            "tests/faults/nodes/test_stay.py",
        ),
        held_by=(
            "tests/faults/nodes/test_hosts.py::test_all_start_together_and_end_with_one_code",
            "tests/faults/nodes/test_hosts.py::test_a_rank_that_dies_anywhere_has_all_drain_and_restart",
            "tests/faults/nodes/test_hosts.py::test_the_place_of_a_host_that_dies_goes_to_a_spare",
            "tests/faults/nodes/test_hosts.py::test_ranks_of_a_frozen_supervisor_are_dead_before_anybody_takes_their_place",
            "tests/faults/nodes/test_hosts.py::test_a_node_that_is_cut_off_kills_its_ranks_in_time_and_comes_back_as_a_spare",
            "tests/faults/nodes/test_hosts.py::test_etcd_that_is_away_ends_no_rank_and_one_that_dies_meanwhile_is_told_at_once",
            "tests/faults/nodes/test_hosts.py::test_a_stop_to_all_ends_the_run_everywhere_with_one_code",
            "tests/faults/nodes/test_shrink.py::test_a_host_that_fails_twice_gets_no_rank_until_its_check_passes",
            "tests/nodes/protocol/test_judge.py",
            "tests/core/plan/test_next_plan_nodes.py",
            "tests/model/test_exploration.py",
        ),
    ),
    # Ways back: one whole run of each stays; the decisions are stories and properties in tests/core.
    Left(
        tests=(
            "tests/faults/recovery/test_hangs.py::test_a_stopped_a_spinning_a_sleeping_and_a_rank_stuck_in_a_save_are_each_found_and_blamed",
            "tests/faults/recovery/test_hangs.py::test_slow_starts_evaluations_saves_slower_steps_real_work_early_ends_and_a_frozen_supervisor",
            "tests/faults/recovery/test_shrinks.py::test_with_fewer_ranks_and_with_all_again_it_is_the_same_training[script1",
            "tests/faults/recovery/test_shrinks.py::test_shards_in_a_folder_that_is_cut_anew_serve_fewer_ranks_whatever_gasps_lie_beside_it",
            "tests/faults/recovery/test_survivors_stay.py::test_a_killed_shard_is_saved_from_memory_where_all_start_again[asked",
            "tests/faults/recovery/test_survivors_stay.py::test_shards_of_a_rejoin_that_failed_are_of_the_life_in_which_their_step_was_made",
        ),
        held_by=(
            "tests/faults/recovery/test_hangs.py::test_as_it_comes_a_silence_is_warned_of_with_all_stacks_and_nobody_is_killed",
            "tests/faults/recovery/test_reset_pipeline.py::test_the_pipeline_from_a_late_table_over_two_faults_to_the_end",
            "tests/faults/recovery/test_shrinks.py::test_with_fewer_ranks_and_with_all_again_it_is_the_same_training",
            "tests/faults/recovery/test_standby.py::test_every_restart_is_warm_and_nothing_piles_up",
            "tests/faults/recovery/test_standby.py::test_torch_trains_on_in_standbys",
            "tests/faults/recovery/test_survivors_stay.py::test_survivors_keep_their_processes_through_one_death_after_the_other",
            "tests/faults/recovery/test_survivors_stay.py::test_a_real_training_ends_in_the_bits_of_an_undisturbed_one",
            "tests/faults/recovery/test_survivors_stay.py::test_a_killed_shard_is_saved_from_memory_where_all_start_again",
            "tests/core/hangs/test_detector.py",
            "tests/core/hangs/test_attribution.py",
            "tests/core/phases/test_platform_notices.py",
            "tests/core/phases/test_replace_ranks.py",
            "tests/core/placement/test_slots.py",
            "tests/core/standby/test_policy.py",
        ),
    ),
    # Verbs: one whole run of each stays; what they print is tested from journals in tests/observe and tests/cli.
    Left(
        tests=(
            "tests/adopt/test_runs.py::test_each_command_of_the_examples_is_one_that_faultrun_takes[0",
            "tests/adopt/test_runs.py::test_each_command_of_the_examples_is_one_that_faultrun_takes[11",
            "tests/faults/reporting/test_outlets.py::test_a_webhook_that_never_answers_and_a_command_that_never_ends_change_nothing",
            "tests/project/test_pythons.py",
            "tests/rehearse/test_bad_scripts.py::test_the_proposed_diff_is_what_was_missing",
            "tests/rehearse/test_bad_scripts.py::test_what_is_wrong_is_named_by_the_grade[--save_every",
            "tests/rehearse/test_bad_scripts.py::test_what_is_wrong_is_named_by_the_grade[--hides_errors",
            "tests/rehearse/test_bad_scripts.py::test_what_is_wrong_is_named_by_the_grade[--in_place",
        ),
        held_by=(
            "tests/adopt/test_runs.py::test_torchrun_of_a_script_with_a_configuration",
            "tests/adopt/test_runs.py::test_each_command_of_the_examples_is_one_that_faultrun_takes",
            "tests/adopt/test_launchers.py",
            "tests/faults/reporting/test_numbers_agree.py::test_saves_of_the_sdk_and_two_kills",
            "tests/faults/reporting/test_outlets.py::test_everybody_is_told_of_a_kill_a_restart_and_the_end",
            "tests/observe/account/test_account.py",
            "tests/project/test_docs.py",
            "tests/rehearse/test_bad_scripts.py::test_what_is_wrong_is_named_by_the_grade",
            "tests/rehearse/test_rehearsals.py::test_a_sound_training_survives_all_and_leaves_everything_as_it_was",
            "tests/rehearse/test_grade.py",
            "tests/rehearse/isolation/test_private_view.py",
        ),
    ),
    # SDK: one training for each framework and way to save, resume and be killed stays.
    Left(
        tests=(
            "tests/sdk/lightning/test_lightning.py::test_from_any_place_that_is_saved_training_ends_as_if_undisturbed[accumulated",
            "tests/sdk/lightning/test_lightning.py::test_from_any_place_that_is_saved_training_ends_as_if_undisturbed[no length",
            "tests/sdk/lightning/test_lightning.py::test_from_any_place_that_is_saved_training_ends_as_if_undisturbed[no validation",
            "tests/sdk/lightning/test_lightning.py::test_from_any_place_that_is_saved_training_ends_as_if_undisturbed[two optimizers",
            "tests/sdk/mindspore/test_dying_gasp.py::test_whichever_rank_is_killed_at_most_one_step_is_lost[0-every-step]",
            "tests/sdk/mindspore/test_dying_gasp.py::test_in_pynative_mode_the_exception_checkpoint_of_old_scripts_works",
            "tests/sdk/torch/repair/test_repair.py::test_a_rank_that_nobody_repairs_ends_and_is_replaced",
            "tests/sdk/torch/repair/test_repair.py::test_a_shard_in_bad_memory_comes_back_from_its_snapshot",
            "tests/sdk/torch/state/test_shards.py::test_of_replicated_shards_at_most_one_step_is_lost[1]",
            "tests/sdk/torch/state/test_shards.py::test_told_to_stop_all_ranks_save_the_same_step[11]",
            "tests/sdk/torch/state/test_shards.py::test_other_ways_to_spread_a_model_are_saved_and_brought_back[mixed",
            "tests/sdk/torch/state/test_shards.py::test_other_ways_to_spread_a_model_are_saved_and_brought_back[offload",
            "tests/sdk/torch/state/test_shards.py::test_other_ways_to_spread_a_model_are_saved_and_brought_back[tensor",
            "tests/sdk/torch/stay/test_pipelines.py",
            "tests/sdk/torch/stay/test_rejoin.py::test_shards_that_are_copied_every_four_steps_go_back_by_four_at_most",
            "tests/sdk/torch/stay/test_rejoin.py::test_nobody_goes_back_into_an_epoch_that_the_script_has_left",
            "tests/sdk/torch/stay/test_rejoin.py::test_a_second_training_of_a_script_is_refused_by_name_and_who_took_a_place_in_the_first_is_in_it",
            "tests/sdk/torch/stay/test_rejoin.py::test_a_function_reads_on_where_its_loader_was",
            "tests/sdk/torch/stay/test_rejoin.py::test_a_compiled_model_keeps_its_code",
            "tests/sdk/torch/stay/test_rejoin.py::test_without_faultrun_it_trains_to_the_same_end",
            "tests/standby/test_codes_preloaded.py::test_the_slow_part_is_imported_before_and_nothing_shows[lightning",
            "tests/standby/test_codes_preloaded.py::test_the_slow_part_is_imported_before_and_nothing_shows[transformers",
            "tests/standby/test_standby_process.py::test_mindspore_compiled_for_nobody_trains_to_the_bits_of_a_fresh_worker",
            "tests/faults/processes/test_mindspore_scheduler.py::test_the_real_mindspore_meets_late_dies_meets_again_and_leaves_in_order",
        ),
        held_by=(
            "tests/sdk/lightning/test_lightning.py::test_from_any_place_that_is_saved_training_ends_as_if_undisturbed",
            "tests/sdk/mindspore/test_dying_gasp.py::test_whichever_rank_is_killed_at_most_one_step_is_lost",
            "tests/sdk/mindspore/test_dying_gasp.py::test_told_to_stop_nothing_is_lost_and_mindio_files_are_where_they_belong",
            "tests/sdk/torch/repair/test_repair.py::test_memory_of_a_rank_of_ddp_may_be_bad_in_any_phase_of_a_step",
            "tests/sdk/torch/state/test_shards.py::test_of_replicated_shards_at_most_one_step_is_lost",
            "tests/sdk/torch/state/test_shards.py::test_told_to_stop_all_ranks_save_the_same_step",
            "tests/sdk/torch/stay/test_rejoin.py::test_a_rank_of_ddp_may_die_in_any_phase_of_a_step",
            "tests/sdk/torch/stay/test_rejoin.py::test_a_shard_of_fsdp2_that_dies_with_its_rank_comes_back_from_memory",
            "tests/sdk/torch/stay/test_rejoin.py::test_a_survivor_may_die_while_it_rejoins",
            "tests/sdk/torch/stay/test_step_attempts.py",
            "tests/sdk/torch/stay/test_live_state.py",
            "tests/sdk/snapshots/test_interval.py",
            "tests/sdk/stay/test_common_step.py",
            "tests/sdk/transformers/test_dying_gasp.py",
            "tests/standby/test_codes_preloaded.py::test_the_slow_part_is_imported_before_and_nothing_shows",
            "tests/frameworks/test_mindspore_cluster.py",
        ),
    ),
    Left(
        tests=(
            "tests/faults/processes/test_signals_to_everybody.py::test_no_save_is_lost_whatever_comes_to_everybody_in_whatever_order",
        ),
        held_by=(
            "tests/faults/processes/test_signals_to_everybody.py::test_a_rank_that_answers_sigterm_outlives_what_everybody_gets_and_saves",
            "tests/faults/processes/test_signals_to_everybody.py::test_a_wrapper_that_dies_of_what_everybody_gets_was_part_of_the_stop",
            "tests/core/phases/test_one_stop.py",
        ),
    ),
    Left(
        tests=(
            "tests/observe/report/test_page.py::test_a_page_of_ten_thousand_incidents_is_light_and_says_what_it_leaves_out",
        ),
        held_by=("tests/observe/report/test_page.py",),
    ),
)


def is_exhaustive(test_id: str) -> bool:
    """Whether ``make test`` leaves the test of this id to ``make test-all``."""
    return any(left.has(test_id) for left in EXHAUSTIVE)


def _is_of(test_id: str, one: str) -> bool:
    rest = test_id[len(one) :]
    return test_id.startswith(one) and ("[" in one or rest[:1] in {"", "[", ":"})
