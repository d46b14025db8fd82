//! Texts on which two tokenizers are compared, chosen for what tokenizers do differently: spaces, digits,
//! contractions, case, accents in both forms, scripts without spaces, marks, bytes.

use crate::encoding::EncodeOptions;
use crate::tokenizer::Tokenizer;

/// The texts.
pub(super) const TEXTS: &[&str] = &[
    "The quick brown fox doesn't jump; it's LAZY, they'll say.",
    " leading, double  space,   triple \ttab\n\nlines \r\n end ",
    "0 12 345 6789 1234567 3.14 1,000,000 x86_64 2024-05-06",
    "caf\u{e9} cafe\u{301} \u{c5}ngstr\u{f6}m na\u{ef}ve \u{fb01}ne \u{2460} \u{ff21}\u{ff22}\u{ff23}",
    "日本語のテキスト 中文字符，标点。한국어 문장",
    "Привет, мир! Γειά σου Κόσμε مرحبا بالعالم שלום हिन्दी ไทย",
    "emoji 🙂👩‍👩‍👧 \u{1f1e9}\u{1f1ea} zero\u{200b}width \u{a0}nbsp",
    "fn main() { let x = a[i] != b->c && !d; } // <tag attr=\"v\"/>",
    "'S 'LL I'M we'VE ALLCAPS CamelCase snake_case kebab-case",
    "!!! ??? ... --- *** ### $$$ %% && (((x))) [[y]] {{z}}",
    "http://example.com/a?b=c&d=e#f user@host.org",
    "a",
    "",
    "   ",
    "\n",
];

/// The first probe that the two encode differently, with or without special tokens.
pub(super) fn difference(first: &Tokenizer, second: &Tokenizer) -> Option<String> {
    let options = [false, true].map(|add_special| EncodeOptions { add_special, parse_special: false });
    let ids = |tokenizer: &Tokenizer, text: &str, options| tokenizer.encode(text, options).ok().map(|found| found.ids);
    let differs = |text: &&&str| options.iter().any(|&options| ids(first, text, options) != ids(second, text, options));
    let mut differing = TEXTS.iter().filter(differs);
    let example = differing.next()?;
    let count = 1 + differing.count();
    let short: String = example.chars().take(24).collect();
    Some(format!("{count} of {} texts are cut differently, such as {short:?}", TEXTS.len()))
}
