//! The index of a sharded checkpoint: which file holds which tensor.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use crate::error::shown;
use crate::folder::{Folder, is_plain};
use crate::tensors::MAX_TENSORS;
use crate::{Error, Source, Tensors, json};

/// The most shards one checkpoint may have.
const MAX_SHARDS: u64 = 4096;
const MAX_BYTES: u64 = 256 << 20;

/// Reads an index and all its shards with `add`, and holds the two to each other.
pub(crate) fn open(
    folder: &Folder,
    index: &Path,
    add: impl Fn(&mut Tensors, Source) -> Result<(), Error>,
) -> Result<Tensors, Error> {
    let map = parse(index, &json::read_text(index, MAX_BYTES)?)?;
    let shards: BTreeSet<&str> = map.values().map(String::as_str).collect();
    // Every name is judged before any file is touched.
    if let Some(name) = shards.iter().find(|name| !is_plain(name)) {
        return Err(Error::UnsafePath { file: index.to_path_buf(), name: shown(name) });
    }
    let mut paths = Vec::new();
    for &shard in &shards {
        match folder.find(shard)? {
            Some(path) => paths.push(path),
            None => return Err(Error::MissingShard { file: index.to_path_buf(), shard: shown(shard) }),
        }
    }
    let mut tensors = Tensors::default();
    for path in &paths {
        add(&mut tensors, Source::open(path)?)?;
    }
    for (name, shard) in &map {
        let file = tensors.infos().get(name).map(|info| &info.file);
        let file = file.or_else(|| tensors.unreadable().get(name).map(|found| &found.file));
        if file.is_none_or(|file| **file != *folder.path().join(shard)) {
            let (tensor, shard) = (shown(name), shown(shard));
            return Err(Error::NotInShard { file: index.to_path_buf(), tensor, shard });
        }
    }
    Ok(tensors)
}

/// The index's `weight_map`: tensor to file.
fn parse(file: &Path, text: &str) -> Result<BTreeMap<String, String>, Error> {
    // Bounds the depth that the reader skips through; values are counted by the map itself.
    json::check(file, text, usize::MAX)?;
    let index: Index = serde_json::from_str(text).map_err(|error| json::syntax(file, &error))?;
    let Some(WeightMap { map, twice }) = index.weight_map else {
        return Err(Error::MissingField { file: file.to_path_buf(), field: "weight_map".into() });
    };
    if let Some(tensor) = twice {
        return Err(Error::DuplicateTensor { file: file.to_path_buf(), tensor: shown(&tensor) });
    }
    if map.is_empty() {
        let problem = "names no tensors".into();
        return Err(Error::BadField { file: file.to_path_buf(), field: "weight_map".into(), problem });
    }
    let limit = |what, size: usize, limit| match size as u64 {
        size if size > limit => Err(Error::TooLarge { file: file.to_path_buf(), what, size, limit }),
        _ => Ok(()),
    };
    limit("number of tensors", map.len(), MAX_TENSORS)?;
    limit("number of shards", map.values().collect::<BTreeSet<_>>().len(), MAX_SHARDS)?;
    Ok(map)
}

#[derive(Deserialize)]
struct Index {
    #[serde(default)]
    weight_map: Option<WeightMap>,
}

struct WeightMap {
    map: BTreeMap<String, String>,
    /// A tensor that was named more than once.
    twice: Option<String>,
}

impl<'de> Deserialize<'de> for WeightMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WeightMap, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = WeightMap;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object of file names under tensor names")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<WeightMap, A::Error> {
                let (mut map, mut twice) = (BTreeMap::new(), None);
                while let Some((tensor, file)) = entries.next_entry::<String, String>()? {
                    if map.insert(tensor.clone(), file).is_some() {
                        twice = Some(tensor);
                    }
                }
                Ok(WeightMap { map, twice })
            }
        }
        deserializer.deserialize_map(Entries)
    }
}
