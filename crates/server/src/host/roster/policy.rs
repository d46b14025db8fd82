//! How long models stay, and how many.

use std::time::Duration;

/// How long a model stays in memory behind its last request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    For(Duration),
    Ever,
}

/// What the server does about the memory of its models. By default all are loaded at the start, and stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policy {
    /// Each is loaded when it is asked for.
    pub on_demand: bool,
    pub keep_alive: Option<Keep>,
    /// The most that are in memory at once.
    pub most_models: Option<usize>,
    /// The most bytes that they may take together.
    pub most_bytes: Option<u64>,
}

impl Policy {
    /// Models come and go.
    pub fn manages(&self) -> bool {
        let Policy { on_demand, keep_alive, most_models, most_bytes } = self;
        *on_demand || keep_alive.is_some() || most_models.is_some() || most_bytes.is_some()
    }

    pub fn keep(&self) -> Keep {
        self.keep_alive.unwrap_or(Keep::Ever)
    }
}

impl Keep {
    /// So many seconds; below none for ever.
    pub fn seconds(seconds: f64) -> Option<Keep> {
        if seconds.is_nan() {
            return None;
        }
        Some(match Duration::try_from_secs_f64(seconds) {
            Ok(time) => Keep::For(time),
            // Negative, or longer than anything lasts.
            Err(_) => Keep::Ever,
        })
    }

    /// Seconds, or a time as in `5m`, `1h30m` or `500ms`; what is negative is for ever.
    pub fn parse(text: &str) -> Option<Keep> {
        let text = text.trim();
        if let Ok(seconds) = text.parse::<f64>() {
            return Keep::seconds(seconds);
        }
        let (sign, mut rest) = text.strip_prefix('-').map_or((1.0, text), |rest| (-1.0, rest));
        let mut sum = 0.0;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
            let (number, behind) = rest.split_at(digits);
            let letters = behind.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(behind.len());
            let (unit, behind) = behind.split_at(letters);
            let scale = match unit {
                "ms" => 1e-3,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return None,
            };
            sum += number.parse::<f64>().ok()? * scale;
            rest = behind;
        }
        text.ends_with(char::is_alphabetic).then(|| Keep::seconds(sign * sum)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        let seconds = |seconds: f64| Some(Keep::For(Duration::from_secs_f64(seconds)));
        for (text, wanted) in [
            ("0", seconds(0.0)),
            ("300", seconds(300.0)),
            ("5m", seconds(300.0)),
            ("1h30m", seconds(5400.0)),
            ("500ms", seconds(0.5)),
            ("1.5s", seconds(1.5)),
            ("-1", Some(Keep::Ever)),
            ("-1m", Some(Keep::Ever)),
            ("1e300", Some(Keep::Ever)),
            ("", None),
            ("-", None),
            ("5 minutes", None),
            ("m", None),
            ("5x", None),
            ("nan", None),
            ("1..5s", None),
        ] {
            assert_eq!(Keep::parse(text), wanted, "{text}");
        }
    }
}
