//! Whether two descriptions compute the same, and if not, where they part.

use crate::common::divisors_for;
use attend_kernels::rope_frequencies;
use attend_nn::spec::{Body, ModelSpec, Position, Rope, RopeScaling, Stack};
use serde_json::Value;

/// Numbers that a file keeps in 32 bits come back with this much of a difference.
const ROUNDING: f64 = 1e-6;

/// The first place where two descriptions differ in what they compute, with both values; `None` where they agree.
///
/// The number of positions a model was made for is not compared: some files must state one where there is none.
pub fn difference(ours: &ModelSpec, theirs: &ModelSpec) -> Option<String> {
    let of = |spec: &ModelSpec| serde_json::to_value(comparable(spec)).unwrap_or(Value::Null);
    differing(&of(ours), &of(theirs), &mut String::new())
}

fn comparable(spec: &ModelSpec) -> ModelSpec {
    let mut spec = ModelSpec { context: None, ..spec.clone() };
    match &mut spec.body {
        Body::Encoder(stack) | Body::Decoder(stack) => plain_scaling(stack),
        Body::EncoderDecoder { encoder, decoder } => {
            plain_scaling(encoder);
            plain_scaling(decoder);
        }
    }
    spec
}

fn plain_scaling(stack: &mut Stack) {
    for layer in &mut stack.layers {
        if let Position::Rope(rope) = &mut layer.attention.position
            && let Some(divisors) = divisors(rope)
        {
            rope.scaling = RopeScaling::Divisors { divisors };
        }
    }
}

/// A scaling that does not depend on the length, as what each frequency is divided by; `None` for the others, and
/// where there is no scaling.
pub(super) fn divisors(rope: &Rope) -> Option<Vec<f32>> {
    match &rope.scaling {
        RopeScaling::Divisors { divisors } => Some(divisors.clone()),
        RopeScaling::Llama3 { .. } => {
            let (scaled, _) = rope_frequencies(rope.base, rope.dim, &rope.scaling, 0);
            Some(divisors_for(rope, &scaled))
        }
        RopeScaling::None
        | RopeScaling::Linear { .. }
        | RopeScaling::Dynamic { .. }
        | RopeScaling::Yarn { .. }
        | RopeScaling::Long { .. } => None,
    }
}

fn differing(ours: &Value, theirs: &Value, path: &mut String) -> Option<String> {
    let inside = |path: &mut String, name: &str, ours: &Value, theirs: &Value| {
        let length = path.len();
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(name);
        let found = differing(ours, theirs, path);
        path.truncate(length);
        found
    };
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) if a.len() == b.len() && a.keys().all(|key| b.contains_key(key)) => {
            a.iter().find_map(|(key, value)| inside(path, key, value, b.get(key)?))
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().find_map(|(index, (a, b))| inside(path, &index.to_string(), a, b))
        }
        (Value::Number(a), Value::Number(b)) => {
            let (x, y) = (a.as_f64()?, b.as_f64()?);
            let near = (x - y).abs() <= ROUNDING * x.abs().max(y.abs());
            (!near).then(|| format!("{path} is {a} here and {b} there"))
        }
        (a, b) if a == b => None,
        (a, b) => Some(format!("{path} is {} here and {} there", crate::reader::short(a), crate::reader::short(b))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attend_nn::spec::Pairing;

    #[test]
    fn divisors_give_the_frequencies_they_stand_for() {
        let scaling = RopeScaling::Llama3 { factor: 32.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original: 8192 };
        let rope = Rope { base: 500_000.0, dim: 64, pairing: Pairing::Halves, scaling: scaling.clone() };
        let divided = RopeScaling::Divisors { divisors: divisors(&rope).unwrap() };
        let (wanted, _) = rope_frequencies(rope.base, 64, &scaling, 0);
        let (found, _) = rope_frequencies(rope.base, 64, &divided, 0);
        for (wanted, found) in wanted.iter().zip(&found) {
            assert!((wanted - found).abs() <= wanted * 1.2e-7, "{wanted} {found}");
        }
        assert_eq!(found[0], wanted[0]);
    }

    #[test]
    fn a_difference_is_named_by_its_place() {
        let json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let (a, b) = (json(r#"{"x": [1, {"y": 2.0}]}"#), json(r#"{"x": [1, {"y": 2.5}]}"#));
        assert_eq!(differing(&a, &b, &mut String::new()).as_deref(), Some("x.1.y is 2.0 here and 2.5 there"));
        assert_eq!(differing(&a, &json(r#"{"x": [1, {"y": 2.0000001}]}"#), &mut String::new()), None);
    }
}
