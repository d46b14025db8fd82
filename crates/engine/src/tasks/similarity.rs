//! How alike two vectors are.

/// A measure of likeness: larger is more alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Similarity {
    /// `a.b / (|a| |b|)`
    Cosine,
    /// `a.b`
    Dot,
    /// `-|a - b|`
    Euclidean,
    /// `-sum |a_i - b_i|`
    Manhattan,
}

impl Similarity {
    /// By the name in a configuration.
    pub fn named(name: &str) -> Option<Similarity> {
        Some(match name {
            "cosine" => Similarity::Cosine,
            "dot" | "dot_product" => Similarity::Dot,
            "euclidean" => Similarity::Euclidean,
            "manhattan" => Similarity::Manhattan,
            _ => return None,
        })
    }

    /// Vectors of equal length; where one has length 0 their cosine is 0.
    pub fn of(self, a: &[f32], b: &[f32]) -> f32 {
        let pairs = || a.iter().zip(b).map(|(a, b)| (f64::from(*a), f64::from(*b)));
        let value = match self {
            Similarity::Dot => pairs().map(|(a, b)| a * b).sum(),
            Similarity::Euclidean => -pairs().map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt(),
            Similarity::Manhattan => -pairs().map(|(a, b)| (a - b).abs()).sum::<f64>(),
            Similarity::Cosine => {
                let (mut dot, mut first, mut second) = (0.0, 0.0, 0.0);
                pairs().for_each(|(a, b)| (dot, first, second) = (dot + a * b, first + a * a, second + b * b));
                if first * second > 0.0 { dot / (first * second).sqrt() } else { 0.0 }
            }
        };
        value as f32
    }
}

#[cfg(test)]
mod tests {
    use super::Similarity::*;

    #[test]
    fn each_measure() {
        let (a, b) = ([1.0, 2.0], [4.0, -2.0]);
        assert_eq!(Dot.of(&a, &b), 0.0);
        assert_eq!(Euclidean.of(&a, &b), -5.0);
        assert_eq!(Manhattan.of(&a, &b), -7.0);
        assert_eq!(Cosine.of(&a, &[2.0, 4.0]), 1.0);
        assert_eq!(Cosine.of(&a, &[0.0, 0.0]), 0.0);
    }
}
