//! Stop strings in a stream of text.

/// Watches text go by, piece by piece, and ends it before the first stop string.
///
/// A match is the stop string whose last character comes first; of several that end together, the longest. Where the
/// text is cut therefore does not depend on how it was divided into tokens. Text is held back only while it is the
/// beginning of a stop string.
#[derive(Debug, Clone)]
pub struct StopFilter {
    stops: Vec<Matcher>,
    /// Text seen and not yet let through: as long as the longest beginning of a stop string that it ends with.
    held: String,
}

/// What one piece of text led to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Released {
    /// Text that may be shown now.
    pub text: String,
    /// The index of the stop string that was found. Nothing follows.
    pub stop: Option<usize>,
}

/// One stop string with the failure function of Knuth, Morris and Pratt (1977), so that each byte costs constant time
/// however the stop string repeats itself.
#[derive(Debug, Clone)]
struct Matcher {
    stop: Vec<u8>,
    /// `failure[k]`: the length of the longest proper border of the first `k + 1` bytes.
    failure: Vec<usize>,
    /// How many bytes of the stop string the text now ends with.
    matched: usize,
}

impl Matcher {
    fn new(stop: &str) -> Matcher {
        let stop = stop.as_bytes().to_vec();
        let mut failure = vec![0; stop.len()];
        let mut border = 0;
        for k in 1..stop.len() {
            while border > 0 && stop[k] != stop[border] {
                border = failure[border - 1];
            }
            border += usize::from(stop[k] == stop[border]);
            failure[k] = border;
        }
        Matcher { stop, failure, matched: 0 }
    }

    /// Takes one byte; true when the stop string is complete.
    fn push(&mut self, byte: u8) -> bool {
        while self.matched > 0 && self.stop.get(self.matched) != Some(&byte) {
            self.matched = self.failure[self.matched - 1];
        }
        if self.stop.get(self.matched) == Some(&byte) {
            self.matched += 1;
        }
        self.matched == self.stop.len()
    }
}

impl StopFilter {
    /// Empty stop strings are ignored: they would end everything before it begins.
    pub fn new(stops: &[String]) -> StopFilter {
        let stops = stops.iter().map(|stop| Matcher::new(stop)).filter(|m| !m.stop.is_empty()).collect();
        StopFilter { stops, held: String::new() }
    }

    /// Takes the next piece of text.
    pub fn push(&mut self, text: &str) -> Released {
        for character in text.chars() {
            self.held.push(character);
            if let Some(stop) = self.push_character(character) {
                self.held.truncate(self.held.len().saturating_sub(self.stops[stop].stop.len()));
                return Released { text: std::mem::take(&mut self.held), stop: Some(stop) };
            }
        }
        let keep = self.stops.iter().map(|stop| stop.matched).max().unwrap_or(0);
        // The held text ends with whole characters and so does what matched: the cut is between characters.
        let tail = self.held.split_off(self.held.len().saturating_sub(keep));
        Released { text: std::mem::replace(&mut self.held, tail), stop: None }
    }

    /// Lets everything through without looking (before the minimum length is reached); a stop string must then begin afresh.
    pub fn pass(&mut self, text: &str) -> String {
        self.held.push_str(text);
        self.finish()
    }

    /// The end of the text: what was held back turned out not to be a stop string.
    pub fn finish(&mut self) -> String {
        for stop in &mut self.stops {
            stop.matched = 0;
        }
        std::mem::take(&mut self.held)
    }

    fn push_character(&mut self, character: char) -> Option<usize> {
        let mut bytes = [0; 4];
        let bytes = character.encode_utf8(&mut bytes).as_bytes();
        let mut found: Option<usize> = None;
        for index in 0..self.stops.len() {
            let mut complete = false;
            for &byte in bytes {
                complete = self.stops[index].push(byte);
            }
            let longer = found.is_none_or(|f| self.stops[f].stop.len() < self.stops[index].stop.len());
            if complete && longer {
                found = Some(index);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(stops: &[&str]) -> StopFilter {
        StopFilter::new(&stops.iter().map(|s| s.to_string()).collect::<Vec<_>>())
    }

    /// The pieces let through, and the stop found.
    fn run(stops: &[&str], pieces: &[&str]) -> (Vec<String>, Option<usize>) {
        let mut filter = filter(stops);
        let mut out = Vec::new();
        for piece in pieces {
            let released = filter.push(piece);
            out.push(released.text);
            if released.stop.is_some() {
                return (out, released.stop);
            }
        }
        out.push(filter.finish());
        (out, None)
    }

    #[test]
    fn a_stop_over_many_tokens_is_never_shown() {
        let pieces: Vec<String> = "ABCDEFGHIJ".chars().map(String::from).collect();
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        let (out, stop) = run(&["DEFGHIJ"], &pieces);
        assert_eq!((out.concat().as_str(), stop), ("ABC", Some(0)));
        assert_eq!(&out[..3], ["A", "B", "C"], "nothing before the stop's beginning is delayed");
    }

    #[test]
    fn only_the_beginning_of_a_stop_is_held_and_all_of_it_is_delivered() {
        let (out, stop) = run(&["DEFGHIJ"], &["x", "x", "D", "E", "F", "q"]);
        assert_eq!(out, ["x", "x", "", "", "", "DEFq", ""]);
        assert_eq!(stop, None);
        let (out, _) = run(&["DEFGHIJ"], &["a", "DEF"]);
        assert_eq!(out, ["a", "", "DEF"]);
        // The second D begins a new match inside the failed one.
        let (out, stop) = run(&["DDE"], &["D", "D", "D", "E", "z"]);
        assert_eq!((out.concat().as_str(), stop), ("D", Some(0)));
    }

    #[test]
    fn a_stop_inside_a_token_and_overlapping_stops() {
        assert_eq!(run(&[".."], &["a", "...", "b"]), (vec!["a".into(), "".into()], Some(0)));
        assert_eq!(run(&["aab", "ab"], &["xaab"]), (vec!["x".into()], Some(0)));
        assert_eq!(run(&["ab", "aab"], &["xa", "ab"]), (vec!["x".into(), "".into()], Some(1)));
        // What ends first wins, however the text is divided.
        for pieces in [vec!["abcd"], vec!["a", "b", "c", "d"], vec!["ab", "cd"]] {
            let (out, stop) = run(&["abcd", "bc"], &pieces);
            assert_eq!((out.concat().as_str(), stop), ("a", Some(1)));
        }
    }

    #[test]
    fn characters_are_never_cut() {
        let (out, stop) = run(&["\u{e9}\u{e8}"], &["caf\u{e9}", "\u{ea}", "\u{e9}", "\u{e8}!"]);
        assert_eq!((out.concat().as_str(), stop), ("caf\u{e9}\u{ea}", Some(0)));
        assert_eq!(run(&["", "\u{1F600}"], &["a", "\u{1F601}"]).0.concat(), "a\u{1F601}");
    }

    /// Every division of a text gives the same cut, and what is let through is always a prefix of the final text.
    #[test]
    fn divisions_do_not_matter() {
        let text = "abaabababbaabbbaababaab";
        for stops in [vec!["abb"], vec!["babab", "aabb"], vec!["bbb", "ba"], vec!["zz"], vec!["baabbbaab", "bbbaa"]] {
            let whole = run(&stops, &[text]);
            for seed in 0..200u64 {
                let draws = crate::rng::Draws { seed, choice: 0 };
                let (mut pieces, mut from) = (Vec::new(), 0);
                while from < text.len() {
                    let length = 1 + (draws.uniform(from, crate::rng::Purpose::Token) * 4.0) as usize;
                    let to = (from + length).min(text.len());
                    pieces.push(&text[from..to]);
                    from = to;
                }
                let parts = run(&stops, &pieces);
                assert_eq!((parts.0.concat(), parts.1), (whole.0.concat(), whole.1), "{stops:?} {pieces:?}");
            }
        }
    }

    #[test]
    fn passing_forgets_a_begun_match() {
        let mut filter = filter(&["ab"]);
        assert_eq!(filter.push("a").text, "");
        assert_eq!(filter.pass("x"), "ax");
        assert_eq!(filter.pass("a"), "a");
        assert_eq!(filter.push("b"), Released { text: "b".into(), stop: None });
    }
}
