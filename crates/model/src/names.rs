//! Name tables: which tensor of a file each of our weights comes from, and how it lies there.
//!
//! A table is a text file of lines `ours = theirs | verb | verb`. `{i}` stands for the layer, a final `*` for `weight`
//! or `bias`. `theirs` may list several names with ` or ` between: the first that the file has is the one, the others
//! may be there too, as copies. The verbs, a closed list, say how our tensor lies in theirs:
//!
//! | verb | meaning |
//! |---|---|
//! | `transpose` | the matrix is stored `[in, out]` |
//! | `qkv blocks` | rows are all queries, all keys, all values |
//! | `qkv groups` | rows are, for each KV head, its queries, its key, its value |
//! | `gate_up blocks` | rows are the gate, then up |
//! | `pairs` | in each head the rows of a rotary pair are neighbours; ours are half a head apart |
//! | `add_one` | the file holds what is added to one |
//! | `subtract_one` | the file holds one more |
//! | `constant` | a buffer: the model uses it, and training leaves it as it is |
//!
//! Directives: `prefix A = B` (a name that starts with A may start with B instead), `suffix A = B` (the same for ends),
//! `drop NAME` (a buffer that is recomputed), `unused NAME` (weights of a part that is not built; said aloud),
//! `single P` (a model with one stack has the names that begin with P here). `**` at the end of a dropped name stands
//! for anything. Every verb can be undone, so that the same table leads back to the file.

use crate::error::Error;
use std::collections::HashMap;

/// The texts of an architecture's tables for each kind of file; of several lines for one of ours the last counts.
#[derive(Debug, Clone, Copy)]
pub struct Tables {
    pub hf: &'static [&'static str],
    pub gguf: &'static [&'static str],
}

/// How our tensor lies in theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Transpose,
    QkvBlocks,
    QkvGroups,
    GateUpBlocks,
    Pairs,
    AddOne,
    SubtractOne,
    Constant,
}

impl Verb {
    fn parse(text: &str) -> Option<Verb> {
        Some(match text {
            "transpose" => Verb::Transpose,
            "qkv blocks" => Verb::QkvBlocks,
            "qkv groups" => Verb::QkvGroups,
            "gate_up blocks" => Verb::GateUpBlocks,
            "pairs" => Verb::Pairs,
            "add_one" => Verb::AddOne,
            "subtract_one" => Verb::SubtractOne,
            "constant" => Verb::Constant,
            _ => return None,
        })
    }
}

/// Where one of our tensors comes from: the names to look for, in order of preference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    pub theirs: Vec<String>,
    pub verbs: Vec<Verb>,
}

/// A parsed table.
#[derive(Debug, Default)]
pub struct Table {
    lines: HashMap<String, Line>,
    prefixes: Vec<(String, String)>,
    suffixes: Vec<(String, String)>,
    dropped: Vec<String>,
    unused: Vec<String>,
    single: String,
}

#[derive(Debug)]
struct Line {
    theirs: Vec<String>,
    verbs: Vec<Verb>,
}

impl Table {
    /// Reads the texts one after the other.
    pub fn parse(texts: &[&str]) -> Result<Table, Error> {
        let mut table = Table::default();
        for line in texts.iter().flat_map(|text| text.lines()) {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                table.line(line).ok_or_else(|| Error::Table(format!("cannot read the line `{line}`")))?;
            }
        }
        Ok(table)
    }

    fn line(&mut self, line: &str) -> Option<()> {
        let (word, rest) = line.split_once(' ')?;
        let pair = || rest.split_once('=').map(|(a, b)| (a.trim().to_string(), b.trim().to_string()));
        match word {
            "prefix" => self.prefixes.push(pair()?),
            "suffix" => self.suffixes.push(pair()?),
            "drop" => self.dropped.push(rest.to_string()),
            "unused" => self.unused.push(rest.to_string()),
            "single" => self.single = rest.to_string(),
            ours => {
                let mut parts = rest.strip_prefix("= ")?.split('|').map(str::trim);
                let theirs: Vec<String> = parts.next()?.split(" or ").map(|name| name.trim().to_string()).collect();
                if theirs.iter().any(|name| name.is_empty() || name.contains(' ')) {
                    return None;
                }
                let verbs = parts.map(Verb::parse).collect::<Option<Vec<Verb>>>()?;
                self.lines.insert(ours.to_string(), Line { theirs, verbs });
            }
        }
        Some(())
    }

    /// The names in a file that our tensor `ours` may have, or `None` where the table does not know it.
    pub fn origin(&self, ours: &str) -> Option<Origin> {
        self.lookup(ours).or_else(|| self.lookup(&format!("{}{ours}", self.single)).filter(|_| !self.single.is_empty()))
    }

    fn lookup(&self, ours: &str) -> Option<Origin> {
        let (pattern, layer) = generalise(ours);
        let (line, kind) = match self.lines.get(&pattern) {
            Some(line) => (line, ""),
            None => {
                let (stem, kind) = pattern.rsplit_once('.').filter(|(_, kind)| matches!(*kind, "weight" | "bias"))?;
                (self.lines.get(&format!("{stem}.*"))?, kind)
            }
        };
        let fill = |name: &String| {
            let name = layer.map_or_else(|| name.clone(), |layer| name.replace("{i}", layer));
            name.strip_suffix('*').map_or_else(|| name.clone(), |stem| format!("{stem}{kind}"))
        };
        let theirs = line.theirs.iter().map(fill).flat_map(|name| self.spellings(name)).collect();
        Some(Origin { theirs, verbs: line.verbs.clone() })
    }

    /// A name and every way to write it: other prefixes, other suffixes, both.
    fn spellings(&self, name: String) -> Vec<String> {
        let mut all = vec![name.clone()];
        for (from, to) in &self.prefixes {
            all.extend(name.strip_prefix(from.as_str()).map(|rest| format!("{to}{rest}")));
        }
        for (from, to) in &self.suffixes {
            let more: Vec<String> =
                all.iter().filter_map(|n| Some(format!("{}{to}", n.strip_suffix(from.as_str())?))).collect();
            all.extend(more);
        }
        all
    }

    /// What the table says of a tensor in the file that none of ours comes from.
    pub fn leftover(&self, theirs: &str) -> Leftover {
        let (pattern, _) = generalise(theirs);
        let listed = |names: &[String]| {
            names.iter().any(|name| self.spellings(name.clone()).iter().any(|spelling| matches(spelling, &pattern)))
        };
        if listed(&self.dropped) {
            Leftover::Buffer
        } else if listed(&self.unused) {
            Leftover::Unused
        } else {
            Leftover::Unknown
        }
    }
}

/// What a table says of a tensor that no weight comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leftover {
    /// A buffer that is computed anew.
    Buffer,
    /// Weights of a part that is not built.
    Unused,
    Unknown,
}

/// The name with its first whole-number part written `{i}`, and that part.
fn generalise(name: &str) -> (String, Option<&str>) {
    let mut layer = None;
    let parts: Vec<&str> = name
        .split('.')
        .map(|part| match layer {
            None if !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()) => {
                layer = Some(part);
                "{i}"
            }
            _ => part,
        })
        .collect();
    (parts.join("."), layer)
}

/// Whether `name` (generalised) is what `pattern` means.
fn matches(pattern: &str, name: &str) -> bool {
    if let Some(start) = pattern.strip_suffix("**") {
        return name.starts_with(start);
    }
    if pattern == name || generalise(pattern).0 == name {
        return true;
    }
    let Some(stem) = pattern.strip_suffix('*') else { return false };
    name.strip_prefix(stem).is_some_and(|kind| matches!(kind, "weight" | "bias"))
}

#[cfg(test)]
mod tests;
