//! `modules.json` of the sentence-transformers library: a model as a list of parts, each of which may have a folder
//! inside the model's. The transformer comes first; older libraries, and some newer ones, give it a folder too.

use std::path::PathBuf;

use crate::Error;
use crate::folder::Folder;
use crate::json::{self, Limits};

/// The folder inside in which the transformer and its tokenizer lie; `None` where they lie in the model's own.
pub(crate) fn transformer(folder: &Folder) -> Result<Option<PathBuf>, Error> {
    let Some(file) = folder.find("modules.json")? else { return Ok(None) };
    let list = json::read(&file, Limits::CONFIG)?;
    let text = |key: &str| list.get(0)?.get(key)?.as_str();
    // The class has moved within the library over the years; its name has not changed.
    let kind = text("type").and_then(|kind| kind.rsplit('.').next()).unwrap_or_default();
    let place = text("path").unwrap_or_default().trim_end_matches('/');
    if place.is_empty() || !matches!(kind, "Transformer" | "MLMTransformer") {
        return Ok(None);
    }
    let problem = || format!("is {place}, and there is no such folder");
    let inside = folder.find(place)?.filter(|inside| inside.is_dir());
    inside.map(Some).ok_or_else(|| Error::BadField { file, field: "[0].path".into(), problem: problem() })
}
