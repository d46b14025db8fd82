//! The container before the zip archive: five pickles (a magic number, a version, the writer's machine, the state, the
//! storages' keys), then for each key a count and the raw elements.

use std::collections::HashMap;

use super::pickle::{Machine, Value};
use super::resolve;
use crate::error::shown;
use crate::stream::Stream;
use crate::tensors::Found;
use crate::{Error, Source};

/// The pickled magic number that such files start with.
const MAGIC: [u8; 15] = *b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";
const VERSION: i64 = 1001;

pub(super) fn is_legacy(source: &Source) -> bool {
    let mut start = [0; MAGIC.len()];
    source.read_at(0, &mut start).is_ok() && start == MAGIC
}

pub(super) fn read(source: &Source) -> Result<Vec<Found>, Error> {
    let mut stream = Stream::part(source, MAGIC.len() as u64, source.length());
    let mut machine = Machine::new(&mut stream);
    let version = machine.run()?;
    if !matches!(version, Value::Int(VERSION)) {
        return Err(machine.damaged("its version is not 1001"));
    }
    let system = machine.run()?;
    if !matches!(machine.field(system, "little_endian"), Some(Value::Bool(true))) {
        return Err(machine.damaged("its numbers are not little-endian"));
    }
    let state = machine.run()?;
    let state = machine.state_dict(state)?;
    let keys = machine.run()?;
    let keys = machine.strings_of(keys).ok_or_else(|| machine.damaged("the storages' keys are not strings"))?;
    let sizes: HashMap<&str, u64> = state.storages.iter().map(|storage| (&*storage.key, storage.element)).collect();
    let mut places = HashMap::new();
    for key in keys {
        let count = stream.u64()?;
        let start = stream.position;
        let damaged = |problem: &str| {
            let problem = format!("the storage {} {problem}", shown(&key));
            Error::BadArchive { file: source.path().to_path_buf(), problem }
        };
        let element = *sizes.get(&*key).ok_or_else(|| damaged("belongs to no tensor"))?;
        let length = count.checked_mul(element).filter(|length| start.checked_add(*length).is_some());
        let length = length.ok_or_else(|| damaged("has an impossible size"))?;
        if start + length > source.length() {
            let (file, expected) = (source.path().to_path_buf(), start + length);
            return Err(Error::Truncated { file, expected, actual: source.length() });
        }
        stream.position = start + length;
        if places.insert(key.clone(), (start, length)).is_some() {
            return Err(damaged("appears twice"));
        }
    }
    if stream.position != source.length() {
        let (file, expected) = (source.path().to_path_buf(), stream.position);
        return Err(Error::TrailingBytes { file, expected, actual: source.length() });
    }
    resolve(source, state, &places)
}
