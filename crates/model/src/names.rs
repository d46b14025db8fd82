//! Name tables: which tensor of a file each of our weights comes from, and how it lies there.
//!
//! A table is a text file of lines `ours = theirs | verb | verb`. `{i}` stands for the layer, `{j}` for the expert or head
//! in it, a final `*` for `weight` or `bias`. `theirs` may list several names with ` or ` between: the first that the file has is the one, the others
//! may be there too, as copies. The verbs, a closed list, say how our tensor lies in theirs:
//!
//! | verb | meaning |
//! |---|---|
//! | `transpose` | the matrix is stored `[in, out]` |
//! | `row` | the vector is stored as a matrix of one row |
//! | `qkv blocks` | rows are all queries, all keys, all values |
//! | `qkv groups` | rows are, for each KV head, its queries, its key, its value |
//! | `qvk quarters` | rows are, for each quarter of the heads, its queries, its values, its keys |
//! | `gate_up blocks` | rows are the gate, then up |
//! | `up_gate blocks` | rows are up, then the gate |
//! | `gate_up alternate` | rows are a row of the gate, a row of up, and so on |
//! | `stacked` | ours is one of a stack: the file's tensor has a dimension more, in front, for `{j}` |
//! | `kv heads` | rows are, for each head, what leads from the latent to its key, then to its value |
//! | `flat` | a matrix of one row is stored as a vector |
//! | `pairs` | in each head the rows of a rotary pair are neighbours; ours are half a head apart |
//! | `add_one` | the file holds what is added to one |
//! | `subtract_one` | the file holds one more |
//! | `constant` | a buffer: the model uses it, and training leaves it as it is |
//!
//! A line with `else` before it says where our tensor is, and how it lies, in a file that has none of the names before.
//!
//! Directives: `prefix A = B` (a name that starts with A may start with B instead), `suffix A = B` (the same for ends),
//! `drop NAME` (a buffer that is recomputed), `unused NAME` (weights of a part that is not built; said aloud),
//! `beyond P` (of names that start with P, those of layers after the last are unused),
//! `single P` (a model with one stack has the names that begin with P here), `same` (the file's names are ours), `nested KEY`
//! (the file counts layers in groups of the number that the configuration has under KEY, of 1 without it: `{i/}` is the
//! group and `{i%}` the place in it). `**` at the end of a dropped name stands for anything. `root P` says what `{root}` stands for in every name of the tables read
//! with it. Every verb can be undone, so that the same table leads back to the file.

use crate::error::Error;
use attend_format::Config;
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
    Row,
    QkvBlocks,
    QkvGroups,
    QvkQuarters,
    GateUpBlocks,
    UpGateBlocks,
    GateUpAlternate,
    Stacked,
    KvHeads,
    Flat,
    Pairs,
    AddOne,
    SubtractOne,
    Constant,
}

impl Verb {
    fn parse(text: &str) -> Option<Verb> {
        Some(match text {
            "transpose" => Verb::Transpose,
            "row" => Verb::Row,
            "qkv blocks" => Verb::QkvBlocks,
            "qkv groups" => Verb::QkvGroups,
            "qvk quarters" => Verb::QvkQuarters,
            "gate_up blocks" => Verb::GateUpBlocks,
            "up_gate blocks" => Verb::UpGateBlocks,
            "gate_up alternate" => Verb::GateUpAlternate,
            "stacked" => Verb::Stacked,
            "kv heads" => Verb::KvHeads,
            "flat" => Verb::Flat,
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
    /// The lines after `else`.
    others: HashMap<String, Line>,
    prefixes: Vec<(String, String)>,
    suffixes: Vec<(String, String)>,
    dropped: Vec<String>,
    unused: Vec<String>,
    beyond: Vec<String>,
    single: String,
    root: String,
    /// The key of the size of the groups that the file counts layers in.
    nested: Option<String>,
    group: usize,
    /// Tensors that no line speaks of have our names in the file.
    same: bool,
}

#[derive(Debug)]
struct Line {
    theirs: Vec<String>,
    verbs: Vec<Verb>,
}

impl Line {
    /// `= theirs | verb | verb`
    fn parse(rest: &str) -> Option<Line> {
        let mut parts = rest.strip_prefix("= ")?.split('|').map(str::trim);
        let theirs: Vec<String> = parts.next()?.split(" or ").map(|name| name.trim().to_string()).collect();
        if theirs.iter().any(|name| name.is_empty() || name.contains(' ')) {
            return None;
        }
        Some(Line { theirs, verbs: parts.map(Verb::parse).collect::<Option<Vec<Verb>>>()? })
    }
}

impl Table {
    /// Reads the texts one after the other.
    pub fn parse(texts: &[&str]) -> Result<Table, Error> {
        let mut table = Table { group: 1, ..Table::default() };
        for line in texts.iter().flat_map(|text| text.lines()) {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                table.line(line).ok_or_else(|| Error::Table(format!("cannot read the line `{line}`")))?;
            }
        }
        table.plant();
        Ok(table)
    }

    /// The same table for a file with this configuration.
    pub fn of(mut self, config: &Config) -> Table {
        let size = self.nested.as_deref().and_then(|key| config.value(key)).and_then(|value| value.as_f64());
        // What is no number is refused where the description is made.
        self.group = size.map_or(1, |size| size as usize).max(1);
        self
    }

    /// Writes the root into every name that has a place for it.
    fn plant(&mut self) {
        let lines = self.lines.values_mut().chain(self.others.values_mut()).flat_map(|line| &mut line.theirs);
        let prefixes = self.prefixes.iter_mut().flat_map(|(from, to)| [from, to]);
        for name in lines.chain(prefixes).chain(&mut self.dropped).chain(&mut self.unused).chain(&mut self.beyond) {
            *name = name.replace("{root}", &self.root);
        }
    }

    fn line(&mut self, line: &str) -> Option<()> {
        if line == "same" {
            self.same = true;
            return Some(());
        }
        let (word, rest) = line.split_once(' ')?;
        let pair = || rest.split_once('=').map(|(a, b)| (a.trim().to_string(), b.trim().to_string()));
        match word {
            "prefix" => self.prefixes.push(pair()?),
            "suffix" => self.suffixes.push(pair()?),
            "drop" => self.dropped.push(rest.to_string()),
            "unused" => self.unused.push(rest.to_string()),
            "root" => self.root = rest.to_string(),
            "beyond" => self.beyond.push(rest.to_string()),
            "single" => self.single = rest.to_string(),
            "nested" => self.nested = Some(rest.to_string()),
            "else" => {
                let (ours, rest) = rest.split_once(' ')?;
                self.others.insert(ours.to_string(), Line::parse(rest)?);
            }
            ours => {
                self.lines.insert(ours.to_string(), Line::parse(rest)?);
                // A later line replaces all of an earlier one.
                self.others.remove(ours);
            }
        }
        Some(())
    }

    /// Whether it has no line: the kind of file does not have the architecture.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && !self.same
    }

    /// The names in a file that our tensor `ours` may have, or `None` where the table does not know it.
    pub fn origin(&self, ours: &str) -> Option<Origin> {
        let single = || format!("{}{ours}", self.single);
        let found = self.lookup(&self.lines, ours);
        let found = found.or_else(|| self.lookup(&self.lines, &single()).filter(|_| !self.single.is_empty()));
        found.or_else(|| self.same.then(|| Origin { theirs: vec![ours.to_string()], verbs: Vec::new() }))
    }

    /// The names to look for where the file has none of those that [`Table::origin`] gives.
    pub fn other_origin(&self, ours: &str) -> Option<Origin> {
        self.lookup(&self.others, ours)
    }

    fn lookup(&self, lines: &HashMap<String, Line>, ours: &str) -> Option<Origin> {
        let (pattern, numbers) = generalise(ours);
        let (line, kind) = match lines.get(&pattern) {
            Some(line) => (line, ""),
            None => {
                let (stem, kind) = pattern.rsplit_once('.').filter(|(_, kind)| matches!(*kind, "weight" | "bias"))?;
                (lines.get(&format!("{stem}.*"))?, kind)
            }
        };
        let fill = |name: &String| {
            let mut name = name.clone();
            for (number, mark) in numbers.iter().zip(MARKS) {
                name = name.replace(mark, number);
            }
            if let (Some(_), Some(Ok(layer))) = (&self.nested, numbers.first().map(|number| number.parse::<usize>())) {
                name = name.replace("{i/}", &(layer / self.group).to_string());
                name = name.replace("{i%}", &(layer % self.group).to_string());
            }
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

    /// What the table says of a tensor in the file that none of ours comes from, in a model of so many layers.
    pub fn leftover(&self, theirs: &str, layers: usize) -> Leftover {
        let (pattern, numbers) = generalise_layer(theirs);
        let any = |names: &[String], test: &dyn Fn(&str) -> bool| {
            names.iter().any(|name| self.spellings(name.clone()).iter().any(|spelling| test(spelling)))
        };
        let listed = |names: &[String]| any(names, &|spelling| matches(spelling, &pattern));
        let after = || numbers.first().and_then(|layer| layer.parse().ok()).is_some_and(|layer: usize| layer >= layers);
        if listed(&self.dropped) {
            Leftover::Buffer
        } else if listed(&self.unused) || any(&self.beyond, &|start| pattern.starts_with(start)) && after() {
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

/// What stands for a name's first and second number.
const MARKS: [&str; 2] = ["{i}", "{j}"];

/// The name with its first two whole-number parts written `{i}` and `{j}`, and those parts.
fn generalise(name: &str) -> (String, Vec<&str>) {
    generalise_up_to(name, MARKS.len())
}

/// The name with its first whole-number part written `{i}`, and that part.
fn generalise_layer(name: &str) -> (String, Vec<&str>) {
    generalise_up_to(name, 1)
}

fn generalise_up_to(name: &str, count: usize) -> (String, Vec<&str>) {
    let mut numbers = Vec::new();
    let parts: Vec<&str> = name
        .split('.')
        .map(|part| match MARKS.get(numbers.len()).filter(|_| numbers.len() < count) {
            Some(mark) if !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()) => {
                numbers.push(part);
                mark
            }
            _ => part,
        })
        .collect();
    (parts.join("."), numbers)
}

/// Whether `name` (generalised) is what `pattern` means.
fn matches(pattern: &str, name: &str) -> bool {
    if let Some(start) = pattern.strip_suffix("**") {
        return name.starts_with(start);
    }
    if pattern == name || generalise_layer(pattern).0 == name {
        return true;
    }
    let Some(stem) = pattern.strip_suffix('*') else { return false };
    name.strip_prefix(stem).is_some_and(|kind| matches!(kind, "weight" | "bias"))
}

#[cfg(test)]
mod tests;
