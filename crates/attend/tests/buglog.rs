//! Which test stands for each reported fault (configurations, weights, GGUF, tokens, templates, translation, adapters,
//! sampling, streams, requests), that those tests are still there, and the tests of the kinds that no other file has.
//!
//! Not here: CFG-08 names a family that is not built yet; the check of a learned table's length is the same for the one that
//! is.

mod common;

use attend::format::Checkpoint;
use attend::model::{LoadOptions, load};
use attend::nn::spec::StackKind;
use attend::nn::{Batch, Nobody, RunOptions, Sequence};
use attend_testkit::files::{gguf::Gguf, model};
use common::{attend, goldens, ran, tiny};
use serde_json::json;
use std::path::Path;

/// Row, file of the test below `crates`, name of the test.
const ROWS: &[(&str, &str, &str)] = &[
    ("CFG-01", "model/tests/strict.rs", "both_spellings_of_a_scaling_mean_the_same"),
    ("CFG-03", "model/tests/strict.rs", "a_nested_base_is_found_and_an_absent_one_is_announced"),
    ("CFG-05", "model/tests/strict.rs", "an_explicit_head_width_counts_and_a_false_one_names_the_tensor"),
    ("CFG-06", "attend/tests/hostile/config.rs", "counts_that_mean_nothing_are_refused_by_name"),
    ("CFG-06", "attend/tests/hostile/gguf_keys.rs", "each_key_as_each_type"),
    ("CFG-07", "attend/tests/usage.rs", "bad_values_are_usage_errors_that_name_the_flag"),
    ("CFG-08", "attend/tests/buglog.rs", "a_learned_table_of_positions_is_not_read_beyond_its_end"),
    ("CFG-09", "model/tests/tensors.rs", "a_tied_model_may_carry_its_output_matrix"),
    ("CFG-11", "model/tests/tensors.rs", "old_and_new_names_of_an_encoder_load_alike"),
    ("CFG-12", "model/tests/strict.rs", "activations_are_told_apart_and_unknown_ones_refused"),
    ("WGT-01", "attend/tests/hostile/every.rs", "hostile_files_are_refused_by_the_loader"),
    ("WGT-01", "format/tests/damage.rs", "no_prefix_is_taken_for_the_whole"),
    ("WGT-02", "model/tests/tensors.rs", "a_missing_shard_or_tensor_stops_the_start"),
    ("WGT-05", "attend/tests/buglog.rs", "names_do_not_lead_out_of_the_models_folder"),
    ("WGT-05", "format/tests/hostile.rs", "hostile_files_end_in_the_expected_error"),
    ("WGT-06", "format/tests/hostile.rs", "hostile_files_end_in_the_expected_error"),
    ("WGT-06", "format/tests/hostile.rs", "odd_but_valid_files_load"),
    ("WGT-08", "model/tests/adapter.rs", "types_of_the_file_are_rounding_only"),
    ("WGT-09", "attend/tests/hostile/tokens.rs", "pickles_run_nothing"),
    ("GGUF-01", "attend/tests/hostile/every.rs", "hostile_files_are_refused_by_the_loader"),
    ("GGUF-02", "format/tests/gguf.rs", "a_vocabulary_of_a_quarter_million"),
    ("GGUF-04", "attend/tests/odd.rs", "odd_files_that_are_models_are_the_model"),
    ("GGUF-05", "attend/tests/buglog.rs", "a_tensor_beyond_the_end_is_refused_by_every_command"),
    ("GGUF-08", "attend/tests/hostile/gguf_keys.rs", "each_key_deleted"),
    ("GGUF-09", "model/tests/gguf.rs", "rows_of_rotary_pairs_are_neighbours_in_the_file"),
    ("GGUF-11", "kernels/tests/dequantize.rs", "nothing_is_left_unwritten_and_part_blocks_are_refused"),
    ("GGUF-11", "attend/tests/buglog.rs", "sizes_beyond_32_bits_are_not_narrowed"),
    ("TOK-01", "text/tests/behaviour.rs", "long_runs_are_encoded"),
    ("TOK-02", "text/tests/older_files.rs", "precompiled_normalisation_is_sentencepieces"),
    ("TOK-04", "text/tests/behaviour.rs", "text_behind_special_tokens_is_the_references"),
    ("TOK-06", "text/tests/behaviour.rs", "spaces_survive"),
    ("TOK-08", "text/tests/behaviour.rs", "streams_of_random_ids_equal_the_batch"),
    ("TOK-09", "text/tests/behaviour.rs", "messages_cannot_spell_control_tokens"),
    ("TPL-01", "text/tests/behaviour.rs", "there_is_one_bos"),
    ("TPL-03", "text/tests/template_rules.rs", "features_render_as_in_python"),
    ("TPL-05", "text/tests/template_rules.rs", "no_template_is_an_error_not_a_guess"),
    ("TPL-06", "text/tests/template_rules.rs", "a_template_reaches_nothing"),
    ("S2S-01", "engine/tests/seq2seq.rs", "decoders_start_with_what_the_files_say"),
    ("S2S-01", "engine/tests/seq2seq.rs", "a_missing_start_is_the_familys_default_or_an_error"),
    ("S2S-02", "engine/tests/seq2seq.rs", "languages_reach_the_encoder_and_the_first_token"),
    ("S2S-02", "attend/tests/translate.rs", "unknown_and_missing_languages_are_said"),
    ("S2S-03", "attend/tests/translate.rs", "every_way_in_gives_the_same_tokens"),
    ("S2S-05", "engine/tests/seq2seq.rs", "versions_of_a_family_scale_tied_logits_alone"),
    ("S2S-06", "engine/tests/seq2seq.rs", "hidden_values_beyond_16_bit_floats_stay_finite"),
    ("S2S-07", "engine/tests/seq2seq.rs", "a_search_by_hand"),
    ("LOR-01", "model/tests/adapter.rs", "the_scale_is_the_configurations"),
    ("LOR-01", "model/src/adapter/config.rs", "scales_are_alpha_over_the_rank_or_its_root"),
    ("LOR-01", "server/tests/http/adapters.rs", "what_is_no_adapter_is_refused_by_name"),
    ("LOR-02", "model/tests/adapter.rs", "merged_and_unmerged_give_the_same"),
    ("LOR-02", "attend/tests/lora.rs", "an_adapter_counts_as_strongly_as_it_is_told"),
    ("LOR-04", "server/tests/http/adapters.rs", "what_is_no_adapter_is_refused_by_name"),
    ("LOR-04", "engine/tests/batch/variants.rs", "adapters_of_files_give_the_bits_they_give_alone"),
    ("LOR-04", "model/tests/adapter.rs", "adapters_of_any_rank_stand_beside_one_another"),
    ("LOR-04", "model/tests/adapter.rs", "what_does_not_fit_the_base_is_refused_by_name"),
    ("SMP-01", "engine/src/sampler/penalties.rs", "repetition_makes_repeats_less_likely_whatever_the_sign_and_once"),
    ("SMP-03", "engine/tests/answers.rs", "choices_do_not_depend_on_their_neighbours"),
    ("SMP-04", "engine/tests/models.rs", "a_damaged_weight_is_an_error_that_names_the_logits"),
    ("SMP-07", "engine/tests/models.rs", "end_tokens_of_every_file_count"),
    ("SMP-08", "engine/tests/answers.rs", "runaway_answers_end_at_the_context_or_a_bound"),
    ("SMP-09", "engine/tests/answers.rs", "runaway_answers_end_at_the_context_or_a_bound"),
    ("SMP-10", "engine/tests/models.rs", "neighbours_in_a_batch_change_nothing"),
    ("STR-01", "text/tests/behaviour.rs", "characters_in_pieces_come_out_whole"),
    ("STR-02", "engine/tests/answers.rs", "characters_over_several_tokens"),
    ("STR-04", "engine/tests/answers.rs", "a_stop_string_over_many_tokens_leaks_nothing_and_ends_at_once"),
    ("STR-05", "engine/tests/answers.rs", "held_back_text_is_finally_delivered"),
    ("STR-06", "engine/tests/answers.rs", "a_stop_string_inside_a_token_cuts_the_token"),
    ("STR-07", "engine/tests/answers.rs", "usage_counts_what_was_fed_and_produced"),
    ("STR-09", "engine/tests/answers.rs", "reported_logprobs_are_those_of_the_sampled_tokens"),
    ("STR-01", "server/tests/http/streams.rs", "characters_in_pieces_come_out_whole"),
    ("STR-02", "server/tests/http/streams.rs", "an_answer_cut_inside_a_character_is_still_text"),
    ("STR-04", "server/tests/http/streams.rs", "a_stop_text_over_many_tokens_leaks_nothing"),
    ("STR-05", "server/tests/http/streams.rs", "held_back_text_is_finally_delivered"),
    ("STR-06", "server/tests/http/streams.rs", "a_stop_text_inside_a_token_cuts_it"),
    ("STR-07", "server/tests/http/openai.rs", "usage_counts_what_was_fed_and_produced"),
    ("STR-09", "server/tests/http/openai.rs", "logprobs_are_those_of_the_sampled_tokens"),
    ("BAT-05", "server/tests/http/company.rs", "neighbours_change_nothing"),
    ("BAT-05", "server/tests/http/company.rs", "one_connection_asks_many_times"),
    ("CCH-01", "engine/tests/state.rs", "nothing_is_left_from_call_to_call"),
    ("CCH-02", "engine/tests/state.rs", "a_window_ends_exactly_where_it_should"),
    ("CCH-04", "server/tests/http/prefix.rs", "an_answer_from_a_kept_prefix_is_the_one_without"),
    ("CCH-04", "engine/tests/batch/prefix.rs", "models_give_the_same_bits_from_a_shared_past"),
    ("CCH-07", "server/tests/http/prefix.rs", "keys_and_salts_keep_what_they_left_to_themselves"),
    ("SCH-01", "server/tests/http/company.rs", "what_cannot_fit_is_refused_at_once"),
    ("SCH-02", "server/tests/http/company.rs", "neighbours_change_nothing"),
    ("SCH-02", "attend/tests/gates/pool.rs", "l5_tiny_pool"),
    ("SCH-03", "attend/tests/gates/drops.rs", "l4_disconnects"),
    ("SCH-03", "server/tests/http/company.rs", "clients_that_go_away_free_everything"),
    ("SCH-05", "server/tests/http/company.rs", "what_cannot_fit_is_refused_at_once"),
    ("SCH-06", "server/tests/http/company.rs", "what_cannot_fit_is_refused_at_once"),
    ("SCH-06", "server/tests/http/openai.rs", "vectors_are_the_librarys"),
    ("SCH-08", "server/tests/http/company.rs", "vectors_of_any_length"),
    ("API-01", "server/tests/http/hostile.rs", "every_hostile_request_is_refused_with_words_and_the_next_is_answered"),
    ("API-02", "server/tests/http/hostile.rs", "every_hostile_request_is_refused_with_words_and_the_next_is_answered"),
    ("API-04", "server/tests/http/hostile.rs", "every_hostile_request_is_refused_with_words_and_the_next_is_answered"),
    ("API-05", "server/tests/http/hostile.rs", "every_hostile_request_is_refused_with_words_and_the_next_is_answered"),
    ("API-06", "server/tests/http/constraints.rs", "hostile_constraints_hurt_nobody_else"),
    ("API-06", "engine/tests/constrain_costs.rs", "hostile_constraints_stay_within_their_memory"),
    ("API-06", "attend/tests/gates/compilers.rs", "q4_compilers"),
    ("API-07", "server/tests/http/constraints.rs", "hostile_constraints_hurt_nobody_else"),
    ("API-07", "engine/tests/constrain_costs.rs", "hostile_constraints_stay_within_their_memory"),
    ("API-10", "server/tests/http/hostile.rs", "every_hostile_request_is_refused_with_words_and_the_next_is_answered"),
    ("API-12", "server/tests/http/hostile.rs", "pairs_of_fields_never_fault"),
    ("API-12", "attend/tests/gates/pairs.rs", "q3_pairs"),
    ("API-13", "server/tests/http/transport.rs", "bodies_are_bounded_before_they_are_read"),
    ("API-16", "server/tests/http/states.rs", "keys_guard_every_route"),
    ("API-18", "server/tests/http/hostile.rs", "every_hostile_request_is_refused_with_words_and_the_next_is_answered"),
    ("RRK-01", "server/tests/http/tasks.rs", "documents_are_scored_with_their_segments"),
    ("RRK-03", "server/tests/http/tasks.rs", "scores_are_squashed_once_or_not"),
    ("RRK-04", "text/tests/older_files.rs", "fairseq_ids_are_shifted"),
    ("RRK-04", "text/tests/older_files.rs", "vocab_txt_is_word_piece"),
    ("API-15", "attend/tests/gates/keys.rs", "q6_keys"),
    ("API-16", "attend/tests/gates/keys.rs", "q6_keys"),
    ("API-18", "attend/tests/gates/apart.rs", "q7_no_network_and_no_stray_files"),
    ("API-15", "server/src/front/guard.rs", "keys_are_read_and_compared"),
    ("BAT-01", "engine/tests/batch/models.rs", "models_give_the_bits_they_give_alone"),
    ("BAT-02", "attend/tests/tasks/company.rs", "vectors"),
    ("BAT-03", "engine/tests/batch/models.rs", "models_give_the_bits_they_give_alone"),
    ("EMB-01", "attend/tests/tasks/pooling.rs", "the_declared_pooling_is_what_is_done"),
    ("EMB-03", "attend/tests/tasks/pooling.rs", "texts_are_cut_where_the_folder_says"),
    ("EMB-04", "attend/tests/tasks/company.rs", "vectors"),
];

#[test]
fn every_row_has_its_test() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (row, file, test) in ROWS {
        let source =
            std::fs::read_to_string(crates.join(file)).unwrap_or_else(|error| panic!("{row}: {file}: {error}"));
        assert!(source.contains(&format!("fn {test}()")), "{row}: {file} has no test {test}");
    }
}

/// CFG-08: as many positions as there are rows, and not one more.
#[test]
fn a_learned_table_of_positions_is_not_read_beyond_its_end() {
    let loaded = load(&goldens().join("bert-mlm"), &LoadOptions::default(), &mut |_, _| {}).unwrap();
    let rows = loaded.source.checkpoint.config().usize("max_position_embeddings").unwrap();
    for length in [1, rows - 1, rows, rows + 1, rows + 2, 4 * rows] {
        let ids = vec![5; length];
        let mut batch = Batch::one(Sequence::new(&ids));
        let outcome = loaded.model.forward(StackKind::Encoder, &mut batch, &RunOptions::default(), &mut Nobody);
        assert_eq!(outcome.is_ok(), length <= rows, "{length} of {rows}: {:?}", outcome.err());
    }
    // The last row counts too, when it is named.
    for (position, fits) in [(rows as u32 - 1, true), (rows as u32, false), (u32::MAX, false)] {
        let sequence = Sequence { positions: Some(&[position]), ..Sequence::new(&[5]) };
        let mut batch = Batch::one(sequence);
        let outcome = loaded.model.forward(StackKind::Encoder, &mut batch, &RunOptions::default(), &mut Nobody);
        assert_eq!(outcome.is_ok(), fits, "position {position}: {:?}", outcome.err());
    }
}

/// WGT-05: on the command line, the same words whether what lies outside exists or not, and nothing is removed.
#[test]
fn names_do_not_lead_out_of_the_models_folder() {
    let outer = tempfile::tempdir().unwrap();
    let models = outer.path().join("models");
    std::fs::create_dir(&models).unwrap();
    let outside = tiny(outer.path(), "llama-gqa", json!({}));
    for name in ["../llama-gqa", "../absent", "..", ".", "", "/", "a/../../llama-gqa", "..\\llama-gqa"] {
        let run = ran(attend(&models).args(["rm", name]));
        let line = run.error(1);
        assert!(line.contains("no model of this name"), "{name}: {line}");
    }
    assert!(outside.join("config.json").exists());
}

/// GGUF-05: the last tensor a mebibyte further on.
#[test]
fn a_tensor_beyond_the_end_is_refused_by_every_command() {
    let models = tempfile::tempdir().unwrap();
    let mut file: Gguf = model::gguf(1);
    let last = file.tensors.last_mut().unwrap();
    last.offset = Some(1 << 20);
    let name = last.name.clone();
    let path = models.path().join("m.gguf");
    std::fs::write(&path, file.bytes()).unwrap();
    for arguments in
        [&["run", "--raw", "w1"][..], &["show"], &["show", "--json"], &["score", "w1 w2"], &["logits", "w1"]]
    {
        let run = ran(attend(models.path()).args([arguments[0], "-m"]).arg(&path).args(&arguments[1..]));
        let line = run.error(1);
        assert!(line.contains("m.gguf") && line.contains(&name), "{arguments:?}: {line}");
    }
    let left: Vec<_> = std::fs::read_dir(models.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["m.gguf"]);
}

/// GGUF-11: a tensor of more than 2^31 elements and 2^32 bytes, in a file with holes for data, is read at its end.
#[test]
fn sizes_beyond_32_bits_are_not_narrowed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let elements = (1u64 << 31) + 256;
    let head = Gguf::new("llama").tensor("big", &[elements], 0, Vec::new()).bytes();
    std::fs::write(&path, &head).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(head.len() as u64 + elements * 4).unwrap();
    let end = head.len() as u64 + elements * 4 - 4;
    std::os::unix::fs::FileExt::write_all_at(&file, &7.5f32.to_le_bytes(), end).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    assert_eq!(checkpoint.tensor("big").unwrap().bytes, elements * 4);
    let mut bytes = [0xff; 8];
    checkpoint.read_at("big", elements * 4 - 8, &mut bytes).unwrap();
    assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0xf0, 0x40]);
    assert!(checkpoint.read_at("big", elements * 4 - 7, &mut bytes).is_err());
    file.set_len(end).unwrap();
    assert!(Checkpoint::open(&path).is_err());
}
