//! Random numbers that depend on nothing but where they are used.
//!
//! Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011) is a function
//! from a key and a counter to four random words, with no state between calls. The key is the request's seed; the
//! counter is the choice index, the token's position and the purpose of the draw. So a token's draw is the same alone, in any
//! batch, after a preemption, and however the prompt was cut into chunks.

/// What a draw is used for; each purpose has numbers of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Choosing the token.
    Token = 0,
    /// Deciding whether XTC acts.
    Xtc = 1,
}

/// The draws of one choice of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draws {
    pub seed: u64,
    /// Which of the request's `n` choices.
    pub choice: u32,
}

impl Draws {
    /// A number in `[0, 1)` with 53 random bits. `position` is the place in the sequence (prompt included) that the
    /// token being chosen will have.
    pub fn uniform(self, position: usize, purpose: Purpose) -> f64 {
        let position = position as u64;
        let counter = [position as u32, (position >> 32) as u32, self.choice, purpose as u32];
        let words = philox4x32_10(counter, [self.seed as u32, (self.seed >> 32) as u32]);
        let bits = (u64::from(words[0] >> 5) << 26) | u64::from(words[1] >> 6);
        bits as f64 / (1u64 << 53) as f64
    }
}

/// A seed for requests that name none, different for every call.
pub fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    // The standard library seeds its hash maps from the system's entropy: the one source that needs no dependency.
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    hasher.write_u128(now.as_nanos());
    // JSON readers commonly hold numbers as doubles: 53 bits survive being shown and given back.
    hasher.finish() >> 11
}

/// Ten rounds of Philox 4x32 (section 4.3 of the paper): `counter` and `key` to four random words.
pub fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    const MULTIPLY: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    let wide = |a: u32, b: u32| {
        let product = u64::from(a) * u64::from(b);
        ((product >> 32) as u32, product as u32)
    };
    let ([mut a, mut b, mut c, mut d], [mut k, mut l]) = (counter, key);
    for _ in 0..10 {
        let (high_a, low_a) = wide(MULTIPLY[0], a);
        let (high_c, low_c) = wide(MULTIPLY[1], c);
        (a, b, c, d) = (high_c ^ b ^ k, low_c, high_a ^ d ^ l, low_a);
        k = k.wrapping_add(WEYL[0]);
        l = l.wrapping_add(WEYL[1]);
    }
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers that the authors publish with their library (Random123, `kat_vectors`).
    #[test]
    fn known_answers() {
        let ones = u32::MAX;
        let cases = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([ones; 4], [ones; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, expected) in cases {
            assert_eq!(philox4x32_10(counter, key), expected);
        }
    }

    #[test]
    fn draws_are_spread_and_differ_by_seed_choice_position_and_purpose() {
        let draws = Draws { seed: 7, choice: 0 };
        let numbers: Vec<f64> = (0..20_000).map(|p| draws.uniform(p, Purpose::Token)).collect();
        assert!(numbers.iter().all(|x| (0.0..1.0).contains(x)));
        let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
        let variance = numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / numbers.len() as f64;
        assert!((mean - 0.5).abs() < 0.01, "{mean}");
        assert!((variance - 1.0 / 12.0).abs() < 0.003, "{variance}");
        let here = draws.uniform(3, Purpose::Token);
        assert_ne!(here, Draws { seed: 8, choice: 0 }.uniform(3, Purpose::Token));
        assert_ne!(here, Draws { seed: 7 | 1 << 40, choice: 0 }.uniform(3, Purpose::Token));
        assert_ne!(here, Draws { seed: 7, choice: 1 }.uniform(3, Purpose::Token));
        assert_ne!(here, draws.uniform(4, Purpose::Token));
        assert_ne!(here, draws.uniform(3, Purpose::Xtc));
    }
}
