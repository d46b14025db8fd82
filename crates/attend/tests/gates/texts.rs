//! M4: streams of any ids are the decoded whole in whole characters; stop texts cut exactly; long words are read in time.

use crate::serving::{alone, best_of_three, report};
use attend::engine::{Engine, EngineOptions, Event, GenerateOptions, Prompt};
use attend::model::{LoadOptions, load};
use attend::text::{EncodeOptions, Tokenizer};
use attend_testkit::files::{scripted, write_all};
use attend_testkit::golden::{Random, golden_root};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Instant;

/// Every recorded tokenizer.
fn tokenizers() -> BTreeMap<String, Tokenizer> {
    let folders = std::fs::read_dir(golden_root().join("tokenizers")).expect("a folder");
    let open = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("text");
        Tokenizer::open(&entry.path()).ok().map(|tokenizer| (name, tokenizer))
    };
    folders.filter_map(open).collect()
}

/// Random ids through a stream and at once; how many sequences there were.
fn streams(all: &BTreeMap<String, Tokenizer>, count: usize) -> usize {
    let mut random = Random(37);
    for (round, (name, tokenizer)) in all.iter().cycle().take(count).enumerate() {
        let ids: Vec<u32> =
            (0..1 + random.below(60)).map(|_| random.below(tokenizer.vocab_size() + 2) as u32).collect();
        let skip = round % 2 == 0;
        let mut stream = tokenizer.stream(skip);
        let mut joined: String = ids.iter().filter_map(|id| stream.push(*id)).collect();
        joined.extend(stream.finish());
        assert_eq!(joined, tokenizer.decode(&ids, skip), "{name}: {ids:?}");
    }
    count
}

/// Texts of pieces that are cut from another one at random, and stop texts anywhere in them; how many there were.
fn stops(count: usize) -> usize {
    const PIECES: [&str; 12] = ["a", "ab", "b", "ba", "aab", ".", "..", "é", "日本", "\u{1F600}", " x", "x"];
    let mut random = Random(41);
    for round in 0..count.div_ceil(10) {
        // Tokens 1 to 40 follow one another; the last one ends.
        let mut words = vec!["?".to_owned()];
        words.extend((0..40).map(|index| format!("{}{}", PIECES[random.below(12)], ["", "", ".", "ab"][index % 4])));
        // Words must differ; marks that no stop text has are taken away again.
        let marked: Vec<String> = words.iter().enumerate().map(|(id, word)| format!("{word}<{id}>")).collect();
        let list: Vec<&str> = marked.iter().map(String::as_str).chain(["END"]).collect();
        let last = list.len() as u32 - 1;
        let follows: Vec<u32> = (0..=last).map(|id| (id + 1).min(last)).collect();
        let place = tempfile::tempdir().expect("a folder");
        write_all(place.path(), &scripted::folder(&list, &follows, &[last])).expect("written");
        let loaded = load(place.path(), &LoadOptions::default(), &mut |_, _| {}).expect("loads");
        let tokenizer = Tokenizer::open(place.path()).expect("a tokenizer");
        let engine = Engine::new(&loaded, Some(&tokenizer), &EngineOptions::default()).expect("an engine");
        let whole: String = marked[2..].concat();
        let starts: Vec<usize> = whole.char_indices().map(|(at, _)| at).collect();
        for _ in 0..10 {
            let some = |random: &mut Random| {
                let from = random.below(starts.len());
                let to = (from + 1 + random.below(12)).min(starts.len() - 1);
                whole[starts[from]..starts[to.max(from)]].to_owned()
            };
            let mut list: Vec<String> = (0..1 + random.below(3)).map(|_| some(&mut random)).collect();
            list.retain(|stop| !stop.is_empty());
            // One that is not there, but begins as if it were.
            list.extend(list.first().map(|stop| format!("{stop}\u{0}")));
            // The one that is whole first counts, whatever the tokens; of several that end together the longest.
            let found = |text: &str| list.iter().filter_map(|stop| text.find(stop.as_str())).min();
            let cut = starts.iter().skip(1).chain([&whole.len()]).find_map(|&end| found(&whole[..end]));
            let expected = &whole[..cut.unwrap_or(whole.len())];
            let mut options = GenerateOptions::default();
            (options.length.stop, options.length.max_tokens) = (list.clone(), Some(60));
            let mut streamed = String::new();
            let output = engine.generate(Prompt::tokens([1]), &options, &mut |event| {
                if let Event::Token { text, .. } | Event::Finished { text, .. } = event {
                    streamed += text;
                }
                ControlFlow::Continue(())
            });
            let choice = &output.expect("an answer").choices[0];
            assert_eq!(choice.text, expected, "round {round}: {list:?}");
            assert_eq!(streamed, expected, "round {round}: {list:?}");
            assert_eq!(choice.finish.reason(), "stop", "by a stop text or the end token");
        }
    }
    count.div_ceil(10) * 10
}

/// Single words of so many characters through every tokenizer; the longest time, in milliseconds, and whose it was.
fn words(all: &BTreeMap<String, Tokenizer>, length: usize) -> (f64, String) {
    let mut random = Random(43);
    let letters: String = (0..length).map(|_| char::from(b'a' + random.below(26) as u8)).collect();
    let samples = ["a".repeat(length), "_".repeat(length), letters, "日".repeat(length), "7".repeat(length)];
    let mut slowest = (0.0, String::new());
    for (name, tokenizer) in all {
        for (index, sample) in samples.iter().enumerate() {
            let begun = Instant::now();
            let options = EncodeOptions { add_special: true, parse_special: false };
            assert!(!tokenizer.encode(sample, options).expect("tokens").ids.is_empty());
            let took = begun.elapsed().as_secs_f64() * 1e3;
            if took > slowest.0 {
                slowest = (took, format!("{name}, word {index}"));
            }
        }
    }
    slowest
}

fn m4((sequences, placements, length): (usize, usize, usize), timed: bool) {
    let _alone = alone();
    let all = tokenizers();
    assert!(all.len() >= 6, "{}", all.len());
    let (sequences, placements) = (streams(&all, sequences), stops(placements));
    best_of_three(|| {
        let (took, whose) = words(&all, length);
        let figures = format!(
            "{sequences} sequences of ids of {} tokenizers: the stream is the whole; {placements} stop texts cut exactly; words of \
             {length} characters in at most {took:.0} ms ({whose})",
            all.len()
        );
        if timed {
            report("M4", &figures);
        }
        if timed && took >= 1000.0 { Err(figures) } else { Ok(()) }
    });
}

#[test]
fn m4_texts_in_small() {
    m4((500, 30, 2_000), false);
}

#[test]
#[ignore = "takes a minute"]
fn m4_texts() {
    m4((10_000, 500, 100_000), true);
}
