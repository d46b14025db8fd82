//! Values of options: read exactly or refused with what would be right.

use attend_kernels::DType;

/// A finite number.
pub fn finite(text: &str) -> Result<f32, String> {
    number(text, |_| true, "a finite number is wanted")
}

/// A number of at least 0.
pub fn not_negative(text: &str) -> Result<f32, String> {
    number(text, |value| value >= 0.0, "a number of at least 0 is wanted")
}

/// A number above 0.
pub fn positive(text: &str) -> Result<f32, String> {
    number(text, |value| value > 0.0, "a number above 0 is wanted")
}

/// A number from 0 to 1.
pub fn fraction(text: &str) -> Result<f32, String> {
    number(text, |value| (0.0..=1.0).contains(&value), "a number from 0 to 1 is wanted")
}

fn number(text: &str, good: impl Fn(f32) -> bool, wanted: &str) -> Result<f32, String> {
    match text.trim().parse::<f32>() {
        Ok(value) if value.is_finite() && good(value) => Ok(value),
        _ => Err(wanted.to_owned()),
    }
}

/// How many tokens the cache may hold: 1 to 2^31 - 1. Nothing wraps, nothing is guessed.
pub fn context(text: &str) -> Result<usize, String> {
    whole(text, 1, i32::MAX as i64).map(|value| value as usize)
}

/// Threads: 1 to 1024.
pub fn threads(text: &str) -> Result<usize, String> {
    whole(text, 1, 1024).map(|value| value as usize)
}

/// A number of tokens, from 0.
pub fn count(text: &str) -> Result<usize, String> {
    whole(text, 0, i32::MAX as i64).map(|value| value as usize)
}

/// A number of things, from 1.
pub fn at_least_one(text: &str) -> Result<usize, String> {
    whole(text, 1, i32::MAX as i64).map(|value| value as usize)
}

/// A number of tokens looked back at; -1 for all.
pub fn look_back(text: &str) -> Result<i64, String> {
    whole(text, -1, i32::MAX as i64)
}

fn whole(text: &str, low: i64, high: i64) -> Result<i64, String> {
    match text.trim().parse::<i64>() {
        Ok(value) if (low..=high).contains(&value) => Ok(value),
        _ => Err(format!("a whole number from {low} to {high} is wanted")),
    }
}

/// A size in memory: `24GB` (10^9), `80GiB` (2^30), a plain number of bytes.
pub fn size(text: &str) -> Result<u64, String> {
    let wanted = || "a size is wanted, as in 24GB or 512MiB".to_owned();
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().map_err(|_| wanted())?;
    let unit = unit.trim().to_ascii_lowercase();
    let scale: f64 = match unit.as_str() {
        "" | "b" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        "t" | "tb" => 1e12,
        "kib" => 1024.0,
        "mib" => 1024.0 * 1024.0,
        "gib" => 1024.0 * 1024.0 * 1024.0,
        "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return Err(wanted()),
    };
    let bytes = number * scale;
    if (1.0..1e19).contains(&bytes) { Ok(bytes as u64) } else { Err(wanted()) }
}

/// Bytes of something that may be left out: 0 is none.
pub fn size_or_none(text: &str) -> Result<u64, String> {
    if text.trim() == "0" { Ok(0) } else { size(text) }
}

/// A type that weights can be kept in, by its name; `q4_k_m` and the like are mixtures around their main type.
pub fn weight_type(text: &str) -> Result<DType, String> {
    use DType::*;
    const TYPES: [DType; 16] =
        [F32, F16, BF16, Q8_0, Q6_K, Q5_K, Q5_1, Q5_0, Q4_K, Q4_1, Q4_0, Q3_K, Q2_K, IQ4_NL, IQ4_XS, MXFP4];
    let asked = text.trim().to_ascii_lowercase();
    let plain = ["_m", "_s", "_l"].iter().find_map(|size| asked.strip_suffix(size)).unwrap_or(&asked);
    TYPES
        .into_iter()
        .find(|dtype| dtype.name() == asked || dtype.name() == plain)
        .ok_or_else(|| format!("one of {} is wanted", TYPES.map(DType::name).join(", ")))
}

/// A plain type that files of weights have.
pub fn plain_type(text: &str) -> Result<DType, String> {
    weight_type(text).ok().filter(|dtype| !dtype.is_quantized()).ok_or_else(|| "f32, f16 or bf16 is wanted".into())
}

/// A token named by its id or its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenName {
    Id(u32),
    Text(String),
}

/// `123` is an id; anything else is the text of one token.
pub fn token(text: &str) -> Result<TokenName, String> {
    match text.parse::<u32>() {
        Ok(id) => Ok(TokenName::Id(id)),
        Err(_) if text.is_empty() => Err("a token id or the text of a token is wanted".into()),
        Err(_) if text.bytes().all(|b| b.is_ascii_digit()) => Err("a token id is below 2^32".into()),
        Err(_) => Ok(TokenName::Text(text.to_owned())),
    }
}

/// `TOKEN=NUMBER`, where the number may be `-inf`.
pub fn token_bias(text: &str) -> Result<(TokenName, f32), String> {
    let wanted = || "TOKEN=NUMBER is wanted, as in 42=-1.5".to_owned();
    let (name, value) = text.rsplit_once('=').ok_or_else(wanted)?;
    let value: f32 = value.trim().parse().map_err(|_| wanted())?;
    if value.is_nan() || value == f32::INFINITY {
        return Err("a finite bias, or -inf, is wanted".into());
    }
    Ok((token(name)?, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_never_a_wrapped_number() {
        for bad in ["-1", "0", "4294967296", "9223372036854775808", "18446744073709551615", "abc", "", "1.5", "1e3"] {
            assert!(context(bad).is_err(), "{bad}");
        }
        assert_eq!(context("2048"), Ok(2048));
    }

    #[test]
    fn numbers_that_are_none_are_refused() {
        for bad in ["nan", "inf", "-inf", "x", ""] {
            assert!(finite(bad).is_err() && not_negative(bad).is_err() && fraction(bad).is_err(), "{bad}");
        }
        assert!(not_negative("-0.1").is_err() && fraction("1.01").is_err() && positive("0").is_err());
        assert_eq!(fraction("0.95"), Ok(0.95));
        assert_eq!(look_back("-1"), Ok(-1));
        assert!(look_back("-2").is_err());
    }

    #[test]
    fn sizes_and_types() {
        assert_eq!(size("24GB"), Ok(24_000_000_000));
        assert_eq!(size("1.5 GiB"), Ok(1_610_612_736));
        assert_eq!(size("1000"), Ok(1000));
        for bad in ["", "GB", "-1GB", "24XB", "0", "1e9", "nan"] {
            assert!(size(bad).is_err(), "{bad}");
        }
        assert_eq!((size_or_none("0"), size_or_none("2kB")), (Ok(0), Ok(2000)));
        assert!(size_or_none("0x").is_err() && size_or_none("").is_err());
        assert_eq!(weight_type("Q4_K_M"), Ok(DType::Q4_K));
        assert_eq!(weight_type("bf16"), Ok(DType::BF16));
        assert!(weight_type("q1").is_err() && weight_type("i8").is_err());
    }

    #[test]
    fn tokens_and_biases() {
        assert_eq!(token("7"), Ok(TokenName::Id(7)));
        assert_eq!(token(" the"), Ok(TokenName::Text(" the".into())));
        assert!(token("4294967296").is_err() && token("").is_err());
        assert_eq!(token_bias("a=b=-inf"), Ok((TokenName::Text("a=b".into()), f32::NEG_INFINITY)));
        assert!(token_bias("7=nan").is_err() && token_bias("7=inf").is_err() && token_bias("7").is_err());
    }
}
