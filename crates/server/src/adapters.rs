//! `/v1/load_lora_adapter`, `/v1/unload_lora_adapter`: adapters that come and go while the server runs, in vLLM's words.
//!
//! Only where the server was told from which folder: a path that leads out of it, by itself or by a link, is none. Requests
//! that run when their adapter is taken away end as they would have.

use crate::failure::Failure;
use crate::front::app::{App, Attach, Entry};
use crate::front::reply;
use crate::front::routes::Asked;
use crate::host::adapter::{Adapter, AdapterAt};
use crate::openai::models::describe;
use axum::body::Body;
use axum::http::{Response, StatusCode};
use serde_json::{Value, json};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of an adapter's name.
const NAME: usize = 256;
/// Entries of an adapter's folder.
const FILES: usize = 1000;

/// Reads an adapter and gives it a name.
///
/// # Errors
/// Requests that cannot be served, and files that are no adapter of the model.
pub async fn load(asked: Asked) -> Result<Response<Body>, Failure> {
    let (app, _, mut fields) = asked.fields().await?;
    let (name, path) = (fields.required_text("lora_name")?, fields.required_text("lora_path")?);
    let (base, strength) = (fields.text("model")?, fields.number("scale", -100.0, 100.0)?.unwrap_or(1.0));
    let replaces = fields.flag("load_inplace")?.unwrap_or(false);
    fields.end()?;
    let folder = folder(&app)?;
    let base = app.entry(base.as_deref())?;
    if base.adapter.is_some() {
        return Err(Failure::field("model", format!("{:?} is an adapter itself", base.name)));
    }
    check_name(&name)?;
    app.change(|entries| room(entries, (&base, &name), replaces, app.limits.adapters))?;
    // What was brought while the server runs would be lost with its model.
    let (model, lease) = app.lease(&base).await?;
    let lease = lease.pinned();
    let (root, own) = (folder.clone(), name.clone());
    let find = move || Ok(AdapterAt { name: own, path: within(&root, &path)?, strength });
    let held = model.read_adapter(find).await.map_err(|failure| relative(failure, &folder))?;
    let adapter = Arc::new(Adapter::new(&base.name, app.figures.of_adapter(&base.name, &name)));
    let notices = held.notices.clone();
    adapter.set(held);
    let bytes = adapter.held().map_or(0, |held| held.bytes);
    let attach = Attach::new(&base.name, Some((adapter, lease)));
    let entry = Entry { name, aliases: Vec::new(), created: now(), seat: base.seat, adapter: Some(attach) };
    let entry = Arc::new(entry);
    // Another may have come by the name, or taken the room, while the files were read.
    let before = app.change(|entries| {
        room(entries, (&base, &entry.name), replaces, app.limits.adapters)?;
        let before = entries.iter().position(|known| known.name == entry.name).map(|at| entries.remove(at));
        entries.push(Arc::clone(&entry));
        Ok::<_, Failure>(before)
    })?;
    before.iter().for_each(|before| forget(&app, before));
    app.log.say("info", "adapter", json!({"model": base.name, "adapter": entry.name, "bytes": bytes}));
    let mut object = describe(&app, &entry);
    object["notices"] = json!(notices.iter().map(|text| shown(text, &folder)).collect::<Vec<String>>());
    Ok(reply::json(StatusCode::OK, &object))
}

/// Takes an adapter's name away, and its weights as soon as no request needs them.
///
/// # Errors
/// A name that no adapter has.
pub async fn unload(asked: Asked) -> Result<Response<Body>, Failure> {
    let (app, _, mut fields) = asked.fields().await?;
    let name = fields.required_text("lora_name")?;
    fields.ignore(&["lora_int_id"]);
    fields.end()?;
    folder(&app)?;
    let gone = app.change(|entries| {
        let at = entries.iter().position(|entry| entry.adapter.is_some() && entry.name == name)?;
        Some(entries.remove(at))
    });
    let gone = gone.ok_or_else(|| {
        let shown: String = name.chars().take(120).collect();
        let failure = Failure::new(StatusCode::NOT_FOUND, format!("there is no adapter {shown:?}"));
        Failure { param: Some("lora_name".into()), ..failure }.code("model_not_found")
    })?;
    forget(&app, &gone);
    if let Some(adapter) = &gone.adapter {
        app.figures.forget_adapter(&adapter.base, &gone.name);
        app.log.say("info", "adapter", json!({"model": adapter.base, "adapter": gone.name, "bytes": 0}));
    }
    let object: Value = json!({"id": gone.name, "object": "model", "deleted": true});
    Ok(reply::json(StatusCode::OK, &object))
}

/// Drops what was kept for an adapter that nobody can name any more.
fn forget(app: &App, gone: &Entry) {
    let model = app.look(gone);
    if let Some((model, adapter)) = model.as_ref().and_then(|model| Some((model, model.adapter.as_ref()?))) {
        model.forget(adapter);
    }
}

/// Seconds of Unix time.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The folder that adapters are loaded from.
fn folder(app: &App) -> Result<PathBuf, Failure> {
    app.adapters.clone().ok_or_else(|| {
        let message = "this server loads no adapters while it runs; it was started without --allow-adapter-loading";
        Failure::new(StatusCode::FORBIDDEN, message).code("adapter_loading_off")
    })
}

fn check_name(name: &str) -> Result<(), Failure> {
    let wrong = |message: String| Err(Failure::field("lora_name", message));
    if name.trim().is_empty() || name.contains(char::is_control) {
        return wrong("lora_name is a name of visible characters".into());
    }
    if name.len() > NAME {
        return wrong(format!("lora_name has {} bytes; at most {NAME} are taken", name.len()));
    }
    Ok(())
}

/// Whether an adapter of this name may join.
fn room(entries: &[Arc<Entry>], (base, name): (&Entry, &str), replaces: bool, most: usize) -> Result<(), Failure> {
    let known = entries.iter().find(|entry| entry.answers_to(name));
    let own = |entry: &Entry| entry.adapter.as_ref().is_some_and(|adapter| adapter.base == base.name);
    match known {
        Some(known) if replaces && own(known) => Ok(()),
        Some(_) => Err(Failure::field("lora_name", format!("the name {name:?} is taken")).code("name_taken")),
        None if entries.iter().filter(|entry| entry.adapter.is_some()).count() >= most => {
            Err(Failure::field("lora_name", format!("there are {most} adapters already")).code("too_many_adapters"))
        }
        None => Ok(()),
    }
}

/// The folder that a request names, which must lie in `root`, with all that is in it. Whether something is there that lies
/// elsewhere cannot be told from the answer.
fn within(root: &Path, asked: &str) -> Result<PathBuf, Failure> {
    let outside =
        || Failure::field("lora_path", "lora_path names a folder inside the one that adapters are loaded from");
    let absent = || {
        let failure = Failure::new(StatusCode::NOT_FOUND, "there is no such folder of an adapter");
        Failure { param: Some("lora_path".into()), ..failure }.code("adapter_not_found")
    };
    let relative = match Path::new(asked).strip_prefix(root) {
        Ok(relative) => relative,
        Err(_) => Path::new(asked),
    };
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if !relative.components().all(plain) || !relative.components().any(|part| matches!(part, Component::Normal(_))) {
        return Err(outside());
    }
    let inside = |path: &Path| path.canonicalize().ok().filter(|path| path.starts_with(root));
    let found = inside(&root.join(relative)).filter(|path| path.is_dir()).ok_or_else(absent)?;
    let entries = std::fs::read_dir(&found).map_err(|_| absent())?;
    for (count, entry) in entries.enumerate() {
        let entry = entry.map_err(|_| absent())?;
        // A link that leads out, or a pipe that would never end.
        let well = inside(&entry.path()).is_some_and(|path| path.is_file() || path.is_dir());
        if !well || count >= FILES {
            let name = entry.file_name().to_string_lossy().into_owned();
            let message = format!("{name:?} in the adapter's folder is no file of its own");
            return Err(Failure::field("lora_path", message).code("invalid_adapter"));
        }
    }
    Ok(found)
}

/// A failure that says where a file lies as the client knows it.
fn relative(failure: Failure, root: &Path) -> Failure {
    let message = shown(&failure.message, root);
    if failure.status != StatusCode::BAD_REQUEST || failure.param.is_some() {
        return Failure { message, ..failure };
    }
    Failure { message, param: Some("lora_path".into()), ..failure }.code("invalid_adapter")
}

fn shown(text: &str, root: &Path) -> String {
    text.replace(&format!("{}/", root.display()), "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_inside() {
        let outer = tempfile::tempdir().expect("a folder");
        let root = outer.path().canonicalize().expect("a folder").join("adapters");
        for path in ["adapters/one/deep", "adapters/two", "secret"] {
            std::fs::create_dir_all(outer.path().join(path)).expect("made");
        }
        std::fs::write(outer.path().join("secret/adapter_config.json"), "{}").expect("written");
        std::fs::write(root.join("one/adapter_config.json"), "{}").expect("written");
        let code = |asked: &str| within(&root, asked).map_err(|failure| failure.code.unwrap_or("outside"));
        for good in ["one", "./one", "one/", "one/deep", root.join("one").to_str().expect("text")] {
            assert!(code(good).is_ok_and(|path| path.starts_with(&root)), "{good}");
        }
        let secret = outer.path().join("secret");
        for bad in ["..", "../secret", "one/../../secret", "/", "", ".", "/etc", secret.to_str().expect("text")] {
            assert_eq!(code(bad), Err("outside"), "{bad}");
        }
        assert_eq!(code("none"), Err("adapter_not_found"));
        assert_eq!(code("one/adapter_config.json"), Err("adapter_not_found"));
        assert_eq!(code("one\0"), Err("adapter_not_found"));
        #[cfg(unix)]
        {
            use std::os::unix::fs::symlink;
            symlink(&secret, root.join("out")).expect("linked");
            symlink("../../nowhere", root.join("dangling")).expect("linked");
            assert_eq!((code("out"), code("dangling")), (Err("adapter_not_found"), Err("adapter_not_found")));
            symlink(root.join("one"), root.join("alias")).expect("linked");
            assert_eq!(code("alias"), Ok(root.join("one")));
            symlink(secret.join("adapter_config.json"), root.join("two/adapter_config.json")).expect("linked");
            assert_eq!(code("two"), Err("invalid_adapter"));
        }
    }
}
