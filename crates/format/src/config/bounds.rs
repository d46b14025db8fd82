//! Sane bounds of known counts, so that no absurd size travels further than its file's reader.

const LAYERS: (u64, u64) = (1, 10_000);
const HEADS: (u64, u64) = (1, 1 << 16);
const WIDTH: (u64, u64) = (1, 1 << 24);
const VOCAB: (u64, u64) = (1, 1 << 26);
const CONTEXT: (u64, u64) = (1, 1 << 40);
const EXPERTS: (u64, u64) = (1, 1 << 16);
const ANY: (u64, u64) = (0, 1 << 40);

/// The least and the largest value of a field, by its name.
pub(super) fn bounds(key: &str) -> (u64, u64) {
    match key {
        "num_hidden_layers" | "n_layer" | "n_layers" | "num_layers" | "encoder_layers" | "decoder_layers"
        | "num_decoder_layers" | "num_hidden_groups" | "inner_group_num" => LAYERS,

        "num_attention_heads"
        | "n_head"
        | "n_heads"
        | "num_heads"
        | "num_key_value_heads"
        | "num_kv_heads"
        | "n_head_kv"
        | "kv_n_heads"
        | "encoder_attention_heads"
        | "decoder_attention_heads" => HEADS,

        "hidden_size"
        | "n_embd"
        | "d_model"
        | "dim"
        | "n_inner"
        | "d_ff"
        | "d_kv"
        | "head_dim"
        | "value_head_dim"
        | "v_head_dim"
        | "qk_nope_head_dim"
        | "qk_rope_head_dim"
        | "kv_lora_rank"
        | "q_lora_rank"
        | "intermediate_size"
        | "ffn_hidden_size"
        | "ffn_dim"
        | "encoder_ffn_dim"
        | "decoder_ffn_dim"
        | "hidden_dim"
        | "embedding_size"
        | "word_embed_proj_dim"
        | "moe_intermediate_size"
        | "shared_expert_intermediate_size"
        | "d_inner" => WIDTH,

        "vocab_size" | "type_vocab_size" | "src_vocab_size" | "tgt_vocab_size" | "decoder_vocab_size" => VOCAB,

        "max_position_embeddings"
        | "n_positions"
        | "n_ctx"
        | "max_seq_len"
        | "seq_length"
        | "max_sequence_length"
        | "original_max_position_embeddings"
        | "max_source_positions"
        | "max_target_positions"
        | "sliding_window"
        | "local_attention"
        | "window_size" => CONTEXT,

        "num_local_experts" | "num_experts" | "n_routed_experts" | "num_experts_per_tok" => EXPERTS,

        "relative_attention_num_buckets" | "relative_attention_max_distance" | "query_pre_attn_scalar" => (1, 1 << 24),
        _ => ANY,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_named_count_refuses_zero() {
        for key in ["num_attention_heads", "n_layer", "hidden_size", "vocab_size", "n_ctx", "sliding_window"] {
            assert_eq!(super::bounds(key).0, 1, "{key}");
        }
        assert_eq!(super::bounds("pad_token_id"), (0, 1 << 40));
    }
}
