//! The named pre-tokenizers of GGUF byte-level vocabularies: which patterns cut the text, one after the other, and what
//! else goes with the name. The patterns are those of the models' own tokenizer files.

use crate::error::Fault;
use crate::pretokenize::{GPT2, PreTokenizer};

/// What a name stands for.
pub(crate) struct Pre {
    pub patterns: Vec<&'static str>,
    /// A word that is in the vocabulary is taken whole.
    pub ignore_merges: bool,
    /// What the file means when it does not say whether to add a BOS.
    pub add_bos: bool,
    /// An EOS behind every text, a doubled one between pairs.
    pub add_sep: bool,
    /// Tokens are spelled in GPT-2's byte characters; otherwise in plain text with `▁` for spaces.
    pub byte_level: bool,
}

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
pub(super) const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const YOUTU: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const KIMI: &str = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
const SPARK: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+"##;
const CJK: &str = "[一-龥぀-ゟ゠-ヿ]+";
const BAILING: &str =
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
const SEED: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
const UNCONTRACTED: &str = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const MINICPM5: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const EXAONE_MOE: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+";
const JAIS2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}";
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";
/// The letters that this pattern lists are the cased ones.
const DEEPSEEK_LETTERS: &str = "\\s?[A-Za-z\u{B5}\u{C0}-\u{D6}\u{D8}-\u{F6}\u{F8}-\u{1BA}\u{1BC}-\u{1BF}\u{1C4}-\u{293}\u{295}-\u{2AF}\u{370}-\u{373}\u{376}\u{377}\u{37B}-\u{37D}\u{37F}\u{386}\u{388}-\u{38A}\u{38C}\u{38E}-\u{3A1}\u{3A3}-\u{3F5}\u{3F7}-\u{481}\u{48A}-\u{52F}\u{531}-\u{556}\u{10A0}-\u{10C5}\u{13A0}-\u{13F5}\u{13F8}-\u{13FD}\u{1C90}-\u{1CBA}\u{1CBD}-\u{1CBF}\u{1D00}-\u{1D2B}\u{1D6B}-\u{1D77}\u{1D79}-\u{1D9A}\u{1E00}-\u{1F15}\u{1F18}-\u{1F1D}\u{1F20}-\u{1F45}\u{1F48}-\u{1F4D}\u{1F50}-\u{1F57}\u{1F59}\u{1F5B}\u{1F5D}\u{1F5F}-\u{1F7D}\u{1F80}-\u{1FB4}\u{1FB6}-\u{1FBC}\u{1FBE}\u{1FC2}-\u{1FC4}\u{1FC6}-\u{1FCC}\u{1FD0}-\u{1FD3}\u{1FD6}-\u{1FDB}\u{1FE0}-\u{1FEC}\u{1FF2}-\u{1FF4}\u{1FF6}-\u{1FFC}\u{2102}\u{2107}\u{210A}-\u{2113}\u{2115}\u{2119}-\u{211D}\u{2124}\u{2126}\u{2128}\u{212A}-\u{212D}\u{212F}-\u{2134}\u{2139}\u{213C}-\u{213F}\u{2145}-\u{2149}\u{214E}\u{2183}\u{2184}\u{2C00}-\u{2C7B}\u{2C7E}-\u{2CE4}\u{2CEB}-\u{2CEE}\u{2CF2}\u{2CF3}\u{A640}-\u{A66D}\u{A680}-\u{A69B}\u{A722}-\u{A76F}\u{A771}-\u{A787}\u{A78B}-\u{A78E}\u{AB70}-\u{ABBF}\u{FB00}-\u{FB06}\u{FB13}-\u{FB17}\u{FF21}-\u{FF3A}\u{FF41}-\u{FF5A}\u{10400}-\u{1044F}\u{104B0}-\u{104D3}\u{104D8}-\u{104FB}\u{10C80}-\u{10CB2}\u{10CC0}-\u{10CF2}\u{118A0}-\u{118DF}\u{1E900}-\u{1E943}]+";

/// One name for each way to cut, the most usual ones first: what a vocabulary that is written here may be called.
pub(crate) const NAMES: &[&str] = &[
    "gpt-2",
    "llama-bpe",
    "qwen2",
    "smaug-bpe",
    "smollm",
    "gpt-4o",
    "tekken",
    "deepseek-v3",
    "deepseek-llm",
    "deepseek-coder",
    "falcon",
    "qwen35",
    "bloom",
    "viking",
    "default",
    "glm4",
    "kimi-k2",
    "superbpe",
    "bailingmoe",
    "seed-coder",
    "minicpm5",
    "exaone-moe",
    "youtu",
    "spark2_5",
    "jais-2",
    "tiny_aya",
    "chameleon",
];

impl Pre {
    /// The pre-tokenizer of a name; no name is the oldest one.
    pub fn find(name: &str) -> Result<Pre, Fault> {
        let mut pre =
            Pre { patterns: patterns(name)?, ignore_merges: false, add_bos: false, add_sep: false, byte_level: true };
        match name {
            "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "falcon-h1" | "pixtral" | "midm-2.0" | "lfm2"
            | "jina-v5-nano" | "tekken" => {
                pre.ignore_merges = true;
                pre.add_bos = true;
            }
            "minicpm5" | "youtu" | "glm4" | "glm5" | "granite-embed-multi-97m" => pre.ignore_merges = true,
            "chameleon" => pre.add_bos = true,
            "jina-v1-en" | "jina-v2-code" | "roberta-bpe" => pre.add_sep = true,
            "gemma4" | "granite-embed-multi-311m" => {
                pre.byte_level = false;
                pre.add_bos = true;
            }
            "sarvam-moe" | "whitespace" => pre.byte_level = false,
            _ => {}
        }
        Ok(pre)
    }

    pub fn pre_tokenizer(&self) -> Result<PreTokenizer, Fault> {
        let steps = self.patterns.iter().map(|pattern| PreTokenizer::isolate(pattern));
        let mut steps = steps.collect::<Result<Vec<_>, _>>()?;
        if self.byte_level {
            steps.push(PreTokenizer::ByteLevel { add_prefix_space: false, use_regex: false });
        }
        Ok(PreTokenizer::Sequence(steps))
    }
}

fn patterns(name: &str) -> Result<Vec<&'static str>, Fault> {
    Ok(match name {
        "" | "default" => vec![r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
        "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "falcon-h1" | "pixtral" | "midm-2.0" | "lfm2"
        | "jina-v5-nano" | "dbrx" | "smaug-bpe" | "chatglm-bpe" | "glm4" | "glm5" => vec![LLAMA3],
        "jais-2" => vec![JAIS2],
        "deepseek-llm" => vec![
            r"[\r\n]",
            DEEPSEEK_LETTERS,
            "\\s?[!-/:-~\u{FF01}-\u{FF0F}\u{FF1A}-\u{FF5E}\u{2018}-\u{201F}\u{3000}-\u{3002}]+",
            r"\s+$",
            "[一-龥ࠀ-一가-퟿]+",
            r"\p{N}+",
        ],
        "deepseek-coder" => vec![r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"],
        "deepseek-v3" | "hunyuan-dense" | "joyai-llm" | "hy_v4" => vec![r"\p{N}{1,3}", CJK, DEEPSEEK3],
        "spark2_5" => vec![r"\p{N}{1,3}", CJK, SPARK, r"\p{N}"],
        "youtu" => vec!["[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+", YOUTU],
        "falcon" => vec![r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
        "starcoder" | "refact" | "command-r" | "smollm" | "codeshell" | "exaone" | "minerva-7b" | "mellum2" => {
            vec![r"\p{N}", GPT2]
        }
        "gpt-2" | "phi-2" | "jina-es" | "jina-de" | "gigachat" | "jina-v2-es" | "jina-v2-de" | "a.x-4.0" | "mellum"
        | "modern-bert" | "mpt" | "olmo" | "jais" | "trillion" | "granite-docling" | "exaone4" | "jina-v1-en"
        | "jina-v2-code" | "roberta-bpe" => vec![GPT2],
        "qwen2" | "deepseek-r1-qwen" | "kormo" | "f2llmv2" | "stablelm2" | "megrez" | "hunyuan" | "solar-open"
        | "grok-2" => vec![QWEN2],
        "qwen35" => vec![QWEN35],
        "poro-chat" | "bloom" | "gpt3-finnish" => vec![BLOOM],
        "viking" => vec![BLOOM, r"\p{N}"],
        "tekken" => vec![TEKKEN],
        "chameleon" => vec![
            "<sentinel:[0-9]+>",
            "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
            r"([\t\n]|    |  )",
            r"\p{N}",
            r"[\p{P}!-/:-@\[-`{-~]",
            GPT2,
        ],
        "gpt-4o" | "llama4" | "kanana2" | "talkie" | "minimax-m2" | "granite-embed-multi-97m" => vec![O200K],
        "tiny_aya" | "cohere2moe" => vec![r"\d{1,3}(?=(?:\d{3})*\b)", O200K],
        "kimi-k2" => vec![KIMI],
        "superbpe" => vec![r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
        "bailingmoe" | "bailingmoe2" | "llada-moe" => vec![BAILING],
        "seed-coder" => vec![SEED],
        "ufakzeka" => vec![UNCONTRACTED],
        "laguna" => vec![r"[^\n]+|[\n]+", QWEN2],
        "exaone-moe" => vec![EXAONE_MOE],
        "minicpm5" => vec![r"\p{N}{1,3}", MINICPM5],
        "gemma4" | "granite-embed-multi-311m" | "sarvam-moe" => vec![r"[^\n]+|[\n]+"],
        "whitespace" => vec![r"\S+"],
        other => {
            let hint = "a newer file than this program; its ids would be wrong";
            return Err(Fault::unknown("tokenizer.ggml.pre", "pre-tokenizer", other, hint));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_name_compiles() {
        for name in [
            "",
            "default",
            "llama-bpe",
            "jais-2",
            "deepseek-llm",
            "deepseek-coder",
            "deepseek-v3",
            "spark2_5",
            "youtu",
            "falcon",
            "starcoder",
            "gpt-2",
            "qwen2",
            "qwen35",
            "bloom",
            "viking",
            "tekken",
            "chameleon",
            "gpt-4o",
            "tiny_aya",
            "kimi-k2",
            "superbpe",
            "bailingmoe",
            "seed-coder",
            "ufakzeka",
            "laguna",
            "exaone-moe",
            "minicpm5",
            "gemma4",
            "whitespace",
            "roberta-bpe",
            "glm4",
        ] {
            Pre::find(name).unwrap().pre_tokenizer().unwrap_or_else(|fault| panic!("{name}: {}", fault.problem));
        }
        let fault = Pre::find("tomorrow").err().unwrap();
        assert!(fault.at("m.gguf").to_string().contains("tomorrow"));
    }

    #[test]
    fn the_common_ones_are_linear() {
        use crate::pattern::Pattern;
        for pattern in
            [GPT2, LLAMA3, QWEN2, QWEN35, O200K, TEKKEN, KIMI, DEEPSEEK3, BAILING, SEED, YOUTU, SPARK, MINICPM5]
        {
            assert!(Pattern::regex(pattern).unwrap().is_linear(), "{pattern}");
        }
    }
}
