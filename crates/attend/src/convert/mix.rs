//! Which type each tensor of a quantised file gets.
//!
//! A mix has a base type, and gives more bits where an error costs most: the output matrix, the values of attention, and
//! the way down from the feed-forward part, in the first and last layers and in every third between them.

use super::is_plain;
use attend_kernels::DType;
use attend_model::ExportTensor;
use clap::ValueEnum;
use regex::Regex;
use std::collections::BTreeMap;

/// What a file is quantised to: one type, or a mix by the usual names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(non_camel_case_types)]
#[value(rename_all = "snake_case")]
pub enum Mix {
    F32,
    F16,
    Bf16,
    #[value(name = "q8_0")]
    Q8_0,
    #[value(name = "q5_1")]
    Q5_1,
    #[value(name = "q5_0")]
    Q5_0,
    #[value(name = "q4_1")]
    Q4_1,
    #[value(name = "q4_0")]
    Q4_0,
    #[value(name = "q6_k")]
    Q6K,
    #[value(name = "q5_k_m", alias = "q5_k")]
    Q5KM,
    #[value(name = "q5_k_s")]
    Q5KS,
    #[value(name = "q4_k_m", alias = "q4_k")]
    Q4KM,
    #[value(name = "q4_k_s")]
    Q4KS,
    #[value(name = "q3_k_l")]
    Q3KL,
    #[value(name = "q3_k_m", alias = "q3_k")]
    Q3KM,
    #[value(name = "q3_k_s")]
    Q3KS,
    #[value(name = "q2_k")]
    Q2K,
    #[value(name = "iq4_nl")]
    Iq4Nl,
    #[value(name = "iq4_xs")]
    Iq4Xs,
    Mxfp4,
}

impl Mix {
    /// The type of most matrices, and the number by which GGUF files name the mix.
    fn base(self) -> (DType, u32) {
        match self {
            Mix::F32 => (DType::F32, 0),
            Mix::F16 => (DType::F16, 1),
            Mix::Bf16 => (DType::BF16, 32),
            Mix::Q8_0 => (DType::Q8_0, 7),
            Mix::Q5_1 => (DType::Q5_1, 9),
            Mix::Q5_0 => (DType::Q5_0, 8),
            Mix::Q4_1 => (DType::Q4_1, 3),
            Mix::Q4_0 => (DType::Q4_0, 2),
            Mix::Q6K => (DType::Q6_K, 18),
            Mix::Q5KM => (DType::Q5_K, 17),
            Mix::Q5KS => (DType::Q5_K, 16),
            Mix::Q4KM => (DType::Q4_K, 15),
            Mix::Q4KS => (DType::Q4_K, 14),
            Mix::Q3KL => (DType::Q3_K, 13),
            Mix::Q3KM => (DType::Q3_K, 12),
            Mix::Q3KS => (DType::Q3_K, 11),
            Mix::Q2K => (DType::Q2_K, 10),
            Mix::Iq4Nl => (DType::IQ4_NL, 25),
            Mix::Iq4Xs => (DType::IQ4_XS, 30),
            Mix::Mxfp4 => (DType::MXFP4, 38),
        }
    }

    /// `general.file_type`.
    pub fn file_type(self) -> u32 {
        self.base().1
    }

    /// The type for one tensor of a model of `layers` layers.
    fn of(self, part: Part, layer: usize, layers: usize) -> DType {
        let base = self.base().0;
        // The first and the last eighth, and every third between them.
        let costly = layer < layers / 8 || layer >= layers * 7 / 8 || (layer - layers / 8) % 3 == 2;
        let early = |count: usize| layer < count;
        match (self, part) {
            (Mix::F32 | Mix::F16 | Mix::Bf16 | Mix::Q8_0, _) => base,
            (Mix::Mxfp4, Part::Output | Part::Embedding) => DType::Q8_0,
            (_, Part::Output) => DType::Q6_K,
            (Mix::Q4KM | Mix::Q5KM, Part::Value | Part::Down) if costly => DType::Q6_K,
            (Mix::Q4KM, Part::Fused) => DType::Q5_K,
            (Mix::Q5KM, Part::Fused) => DType::Q6_K,
            (Mix::Q4KS, Part::Value) if early(4) => DType::Q5_K,
            (Mix::Q4KS, Part::Down) if early(layers / 8) => DType::Q5_K,
            (Mix::Q3KL, Part::Value | Part::Down | Part::Out) => DType::Q5_K,
            (Mix::Q3KM, Part::Value) => {
                if early(2) {
                    DType::Q5_K
                } else {
                    DType::Q4_K
                }
            }
            (Mix::Q3KM, Part::Down) => {
                if early(layers / 16) {
                    DType::Q5_K
                } else {
                    DType::Q4_K
                }
            }
            (Mix::Q3KM | Mix::Q3KL, Part::Fused) | (Mix::Q3KM, Part::Out) => DType::Q4_K,
            (Mix::Q2K, Part::Value | Part::Fused) => DType::Q4_K,
            (Mix::Q2K, Part::Down | Part::Out) => DType::Q3_K,
            (
                Mix::Q5_1
                | Mix::Q5_0
                | Mix::Q4_1
                | Mix::Q4_0
                | Mix::Q6K
                | Mix::Q5KM
                | Mix::Q5KS
                | Mix::Q4KM
                | Mix::Q4KS
                | Mix::Q3KL
                | Mix::Q3KM
                | Mix::Q3KS
                | Mix::Q2K
                | Mix::Iq4Nl
                | Mix::Iq4Xs
                | Mix::Mxfp4,
                Part::Embedding | Part::Value | Part::Fused | Part::Out | Part::Down | Part::Other,
            ) => base,
        }
    }
}

/// What a matrix does, as far as a mix tells matrices apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Embedding,
    /// The output matrix, or the embedding that is used as one.
    Output,
    Value,
    /// Query, key and value in one.
    Fused,
    /// The way out of attention.
    Out,
    Down,
    Other,
}

impl Part {
    fn of(name: &str, tied: bool) -> Part {
        let last = name.trim_end_matches(".weight").rsplit('.').next().unwrap_or_default();
        match last {
            "token_embd" if tied => Part::Output,
            "token_embd" => Part::Embedding,
            "output" => Part::Output,
            "attn_v" | "attn_v_b" => Part::Value,
            "attn_qkv" => Part::Fused,
            "attn_output" | "attn_o" => Part::Out,
            "ffn_down" | "ffn_down_exps" | "ffn_down_shexp" => Part::Down,
            _ => Part::Other,
        }
    }
}

/// A type for the tensors whose names match.
#[derive(Debug, Clone)]
pub struct Override {
    pub pattern: Regex,
    pub dtype: DType,
}

/// The block type that takes the place of one whose blocks do not fit a row.
fn fallback(dtype: DType, row: usize) -> DType {
    /// Types of blocks of 256, and what comes nearest to each with blocks of 32.
    const NEXT: [(DType, DType); 6] = [
        (DType::Q2_K, DType::IQ4_NL),
        (DType::Q3_K, DType::IQ4_NL),
        (DType::IQ4_XS, DType::IQ4_NL),
        (DType::Q4_K, DType::Q5_0),
        (DType::Q5_K, DType::Q5_1),
        (DType::Q6_K, DType::Q8_0),
    ];
    let fits = |dtype: &DType| row.is_multiple_of(dtype.block_len());
    let next = NEXT.iter().find(|(from, _)| *from == dtype).map(|(_, to)| *to);
    [Some(dtype), next].into_iter().flatten().find(fits).unwrap_or(DType::F16)
}

/// The types of all tensors of a file, and what there is to say about them.
#[derive(Debug, Default)]
pub struct Types {
    pub by_name: BTreeMap<String, DType>,
    pub notices: Vec<String>,
    /// Overrides that match no matrix, by their place in the list.
    pub idle: Vec<usize>,
}

/// Matrices that blocks would cost more than they save, as `attend_model` loads them too: tables that are added to every
/// token, and under q8_0 the value projections of encoders.
fn needs_sixteen_bits(name: &str, mix: Mix, encoder: bool) -> bool {
    let table = matches!(name, "position_embd.weight" | "token_types.weight");
    table || encoder && mix == Mix::Q8_0 && (name.contains(".attn_v.") || name.contains(".attn_qkv."))
}

/// Chooses a type for every tensor of a model, which may be an encoder alone. The first override that matches a matrix
/// decides over it.
pub fn types(tensors: &[ExportTensor], mix: Mix, overrides: &[Override], encoder: bool) -> Types {
    let layer = |name: &str| name.split('.').find_map(|part| part.parse::<usize>().ok());
    let layers = tensors.iter().filter_map(|tensor| layer(&tensor.name)).max().map_or(0, |last| last + 1);
    let tied = !tensors.iter().any(|tensor| tensor.name == "output.weight");
    let mut found = Types::default();
    let mut idle: Vec<bool> = vec![true; overrides.len()];
    let mut replaced: BTreeMap<(DType, DType), Vec<(&str, usize)>> = BTreeMap::new();
    let mut again: Vec<&str> = Vec::new();
    for tensor in tensors {
        let name = tensor.name.as_str();
        if is_plain(tensor) || name.contains("_norm") {
            found.by_name.insert(name.into(), DType::F32);
            continue;
        }
        let given = overrides.iter().position(|wanted| wanted.pattern.is_match(name));
        given.iter().for_each(|&at| idle[at] = false);
        let wanted = match given {
            Some(at) => overrides[at].dtype,
            None if mix.base().0.is_quantized()
                && !tensor.dtype.is_quantized()
                && needs_sixteen_bits(name, mix, encoder) =>
            {
                DType::F16
            }
            None => mix.of(Part::of(name, tied), layer(name).unwrap_or(0), layers),
        };
        let dtype = fallback(wanted, tensor.row());
        if dtype != wanted {
            replaced.entry((wanted, dtype)).or_default().push((name, tensor.row()));
        }
        if tensor.dtype.is_quantized() && dtype != tensor.dtype && dtype.is_quantized() {
            again.push(name);
        }
        found.by_name.insert(name.into(), dtype);
    }
    for ((wanted, dtype), names) in replaced {
        let (name, row) = names[0];
        let more = if names.len() > 1 { format!(" and {} more", names.len() - 1) } else { String::new() };
        found.notices.push(format!(
            "{dtype} in place of {wanted} for `{name}`{more}: rows of {row} values are no multiple of {}",
            wanted.block_len()
        ));
    }
    if let Some(name) = again.first() {
        let more = if again.len() > 1 { format!(" and {} more", again.len() - 1) } else { String::new() };
        found.notices.push(format!(
            "`{name}`{more} were quantised before: the errors add up; quantise from the original where there is one"
        ));
    }
    found.idle = idle.iter().enumerate().filter(|(_, idle)| **idle).map(|(at, _)| at).collect();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_spends_bits_where_they_count() {
        let layers = 32;
        let value = |mix: Mix, layer| mix.of(Part::of(&format!("blk.{layer}.attn_v.weight"), true), layer, layers);
        assert_eq!([0, 3, 4, 6, 28, 31].map(|layer| value(Mix::Q4KM, layer)), {
            use DType::*;
            [Q6_K, Q6_K, Q4_K, Q6_K, Q6_K, Q6_K]
        });
        assert_eq!(value(Mix::Q6K, 5), DType::Q6_K);
        assert_eq!(Mix::Q4_0.of(Part::of("token_embd.weight", true), 0, 1), DType::Q6_K);
        assert_eq!(Mix::Q4_0.of(Part::of("token_embd.weight", false), 0, 1), DType::Q4_0);
        assert_eq!(Mix::F16.of(Part::Output, 0, 1), DType::F16);
        // A model of few layers has no first eighth.
        assert_eq!(Mix::Q4KM.of(Part::Down, 0, 2), DType::Q4_K);
        assert_eq!(Mix::Q4KM.of(Part::Down, 1, 2), DType::Q6_K);
    }

    #[test]
    fn a_row_that_blocks_do_not_fill_gets_another_type() {
        for (dtype, row, expected) in [
            (DType::Q4_K, 512, DType::Q4_K),
            (DType::Q4_K, 576, DType::Q5_0),
            (DType::Q6_K, 64, DType::Q8_0),
            (DType::Q3_K, 96, DType::IQ4_NL),
            (DType::Q4_0, 40, DType::F16),
            (DType::Q5_K, 172, DType::F16),
            (DType::F32, 7, DType::F32),
        ] {
            assert_eq!(fallback(dtype, row), expected, "{dtype} {row}");
        }
    }
}
