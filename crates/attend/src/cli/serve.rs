//! `attend serve`: models over HTTP.

use super::error::usage;
use super::interrupt::Graceful;
use super::options::{self, AdapterArg, ComputeArgs, ModelArg};
use super::session::{self, Session};
use super::{error, screen, values};
use crate::models::{self, DEFAULT_MODEL, Folder, Found};
use anyhow::{Context, Result, anyhow};
use attend_server::{AdapterAt, Bounds, Keys, Limits, Listen, Loader, Log, Model, Options, Parts, Server, Tls};
use attend_server::{Keep, Offer, Policy, Tell};
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::net::ToSocketAddrs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  attend serve
  attend serve -m model.gguf --port 9000
  attend serve -m chat=model.gguf -m all-MiniLM-L6-v2 --api-key-file keys.txt --host 0.0.0.0
  attend serve -m model.gguf --adapter law=adapters/law --adapter jokes=adapters/jokes=0.7
  attend serve -m chat,gpt-4o=model.gguf -m code=coder.gguf --load-on-demand --keep-alive 5m --max-models 1
  attend serve --host 0.0.0.0 --port 443 --tls-cert chain.pem --tls-key key.pem --api-key-file keys.txt
  attend serve --unix-socket /run/user/1000/attend.sock
  curl localhost:8080/v1/chat/completions -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'

A browser that opens its address gets a page to chat with the models. It listens on this machine only unless --host says \
otherwise. Standard output says where, and within which limits; standard error carries a line of JSON for each request. \
docs/serve.md has every route.")]
pub struct ServeArgs {
    /// A model, and the names that requests call it by [default name: its own]; the first answers where none is named (may
    /// be repeated)
    #[arg(short, long, value_name = "[NAME[,NAME...]=]MODEL", value_parser = OsStringValueParser::new().try_map(named))]
    pub model: Vec<Named>,
    /// The address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub host: String,
    /// The port to listen on; 0 takes any that is free
    #[arg(long, value_name = "PORT", default_value = "8080", allow_negative_numbers = true)]
    pub port: u16,
    /// A certificate in PEM, with those that vouch for it behind it: the server then speaks HTTPS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The certificate's key in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// A socket in the file system to listen on in place of an address; nobody but this user can open it
    #[arg(long, visible_alias = "uds", value_name = "PATH", conflicts_with_all = ["host", "port", "tls_cert", "tls_key"])]
    pub unix_socket: Option<PathBuf>,
    /// A file with a key in each line, of which every request must bring one
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// The most memory for keys and values of each model, as in 2GB [default: what is free, at most 1 GiB]
    #[arg(long, value_name = "BYTES", value_parser = values::size)]
    pub kv_memory: Option<u64>,
    /// The most memory beside it for keys and values of what requests begin with alike, as in 500MB; 0: none [default: a
    /// quarter of it]
    #[arg(long, value_name = "BYTES", value_parser = values::size_or_none)]
    pub prefix_cache: Option<u64>,
    /// The most answers of each model that are made at once, beams and alternatives counted; fewer are quicker each, and more
    /// wait [default: 64]
    #[arg(long, value_name = "N", value_parser = values::at_least_one, allow_negative_numbers = true)]
    pub parallel: Option<usize>,
    /// A smaller model with the same vocabulary that guesses what the first one will say
    #[arg(long, value_name = "MODEL")]
    pub draft: Option<OsString>,
    /// A LoRA adapter of the first model, or of another one, that requests call by a name of its own, and how strongly it
    /// counts [default: 1] (may be repeated)
    #[arg(
        long,
        value_name = "[MODEL:]NAME=PATH[=SCALE]",
        value_parser = OsStringValueParser::new().try_map(named_adapter)
    )]
    pub adapter: Vec<NamedAdapter>,
    /// Lets requests load adapters from this folder, and unload any
    #[arg(long, value_name = "DIR")]
    pub allow_adapter_loading: Option<PathBuf>,
    /// Loads each model when it is asked for; requests wait for it
    #[arg(long)]
    pub load_on_demand: bool,
    /// How long a model stays in memory behind its last request, as in 300, 5m or 1h30m; 0: until its answer, -1: for ever
    /// [default: for ever]
    #[arg(long, value_name = "TIME", value_parser = keep_alive, allow_hyphen_values = true)]
    pub keep_alive: Option<Keep>,
    /// The most models in memory; the one that was not used for longest makes room for another
    #[arg(long, value_name = "N", value_parser = values::at_least_one, allow_negative_numbers = true)]
    pub max_models: Option<usize>,
    /// The most memory that models may take together, with all that may be kept of keys and values, as in 24GB
    #[arg(long, value_name = "BYTES", value_parser = values::size)]
    pub model_memory: Option<u64>,
    /// Requests of a model that may wait; the next is refused
    #[arg(long, value_name = "N", default_value = "128", value_parser = values::at_least_one, allow_negative_numbers = true)]
    pub queue: usize,
    /// How long running answers may go on after the server was told to stop; then they are cut
    #[arg(long, value_name = "SECONDS", default_value = "20", value_parser = clap::value_parser!(u64).range(..=86_400))]
    pub grace: u64,
    /// No line for each request
    #[arg(long)]
    pub no_log: bool,
    #[command(flatten)]
    pub compute: ComputeArgs,
}

/// A model with the name that it is asked by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub name: String,
    /// Other names for it.
    pub aliases: Vec<String>,
    pub model: OsString,
}

fn keep_alive(word: &str) -> Result<Keep, String> {
    Keep::parse(word).ok_or_else(|| "seconds are wanted, or a time as in 5m".into())
}

fn named(word: OsString) -> Result<Named, String> {
    let split = word.to_str().filter(|_| !Path::new(&word).exists()).and_then(|text| text.split_once('='));
    match split {
        Some((names, model)) if !model.is_empty() && !names.contains(char::is_control) => {
            let mut names: Vec<String> = names.split(',').map(|name| name.trim().to_owned()).collect();
            if names.iter().any(String::is_empty) {
                return Err("NAME=MODEL is wanted".into());
            }
            let name = names.remove(0);
            Ok(Named { name, aliases: names, model: model.into() })
        }
        Some(_) => Err("NAME=MODEL is wanted".into()),
        None => Ok(Named { name: own_name(&word), aliases: Vec::new(), model: word }),
    }
}

/// An adapter as it was named: what stands before the first =, which may begin with a model's name, and what lies behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedAdapter {
    pub name: String,
    pub adapter: AdapterArg,
}

fn named_adapter(word: OsString) -> Result<NamedAdapter, String> {
    let wanted = || "NAME=PATH is wanted".to_owned();
    let (name, path) = word.to_str().and_then(|text| text.split_once('=')).ok_or_else(wanted)?;
    if name.is_empty() || path.is_empty() || name.contains(char::is_control) {
        return Err(wanted());
    }
    Ok(NamedAdapter { name: name.to_owned(), adapter: options::adapter(path.into())? })
}

impl Named {
    fn names(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.name).chain(&self.aliases)
    }
}

/// Each adapter with the name of its model; no two names of models or adapters are the same.
fn adapters(args: &ServeArgs, models: &[Named]) -> Result<Vec<(String, AdapterAt)>> {
    let mut found: Vec<(String, AdapterAt)> = Vec::new();
    for NamedAdapter { name, adapter: AdapterArg { path, strength } } in &args.adapter {
        // Names of models may have colons themselves.
        let behind = |model: &Named| name.strip_prefix(&model.name)?.strip_prefix(':').map(str::to_owned);
        let of = models.iter().find_map(|model| Some((model.name.clone(), behind(model)?)));
        let (model, name) = match (of, models.first()) {
            (Some((model, name)), _) if !name.is_empty() => (model, name),
            (None, Some(first)) if !name.contains(':') => (first.name.clone(), name.clone()),
            _ => return Err(usage(format!("--adapter {name:?}: there is no model of the name before the colon"))),
        };
        if models.iter().flat_map(Named::names).any(|own| *own == name) || found.iter().any(|(_, at)| at.name == name) {
            return Err(usage(format!("--adapter: the name {name:?} is taken; give another")));
        }
        found.push((model, AdapterAt { name, path: path.clone(), strength: *strength }));
    }
    Ok(found)
}

/// The name of a model that was given none: a file's or folder's without what leads to it, any other as it stands.
fn own_name(word: &OsString) -> String {
    let path = Path::new(word);
    let name = match path.exists() {
        true if path.is_file() => path.file_stem(),
        true => path.file_name(),
        false => None,
    };
    name.unwrap_or(word).to_string_lossy().into_owned()
}

pub fn run(args: &ServeArgs) -> Result<bool> {
    let models = if args.model.is_empty() { vec![default_model()] } else { args.model.clone() };
    let names: Vec<&String> = models.iter().flat_map(Named::names).collect();
    if let Some((_, twice)) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
        return Err(usage(format!("two models have the name {twice:?}; give one another (-m NAME=MODEL)")));
    }
    let adapters = adapters(args, &models)?;
    let keys = keys(args)?;
    session::prepare(&args.compute)?;
    let limits = Limits { queue: args.queue, grace: Duration::from_secs(args.grace), ..Limits::default() };
    let mut draft = args.draft.clone();
    let offer = |Named { name, aliases, model }: Named| {
        let size = size(&model);
        Offer { name, aliases, size, loader: loader(args, model, draft.take()) }
    };
    let offers = models.into_iter().map(offer).collect();
    let log = if args.no_log { Log::none() } else { Log::to(Box::new(std::io::stderr())).context("no thread")? };
    let options = Options {
        listen: listen(args)?,
        keys,
        limits,
        log: Arc::new(log),
        models: offers,
        policy: Policy {
            on_demand: args.load_on_demand,
            keep_alive: args.keep_alive,
            most_models: args.max_models,
            most_bytes: args.model_memory,
        },
        adapters,
        adapter_folder: args.allow_adapter_loading.clone(),
        tell: Tell { loaded: Arc::new(|model| say(&ready(model))), unloaded: Arc::new(unloaded) },
    };
    let open = options.keys.is_empty() && args.unix_socket.is_none() && !is_loopback(&args.host);
    let server = Server::bind(options).map_err(|message| anyhow!(message))?;
    if open {
        screen::notice("note: anybody who reaches this address may ask: there is no key (--api-key-file)");
    }
    say(&format!("listening on {}\nlimits: {}", server.address(), limits.to_string().replace('\n', "\n        ")));
    // The server ends its work at the first Ctrl-C; the second one ends the program.
    let _graceful = Graceful::begin();
    server.run(attend_server::stop_signal()).map_err(|message| anyhow!(message))?;
    Ok(true)
}

fn default_model() -> Named {
    Named { name: DEFAULT_MODEL.name.into(), aliases: Vec::new(), model: DEFAULT_MODEL.name.into() }
}

fn keys(args: &ServeArgs) -> Result<Keys> {
    let Some(path) = &args.api_key_file else { return Ok(Keys::default()) };
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Keys::parse(&text).map_err(|problem| anyhow!("{}: {problem}", path.display()))
}

fn listen(args: &ServeArgs) -> Result<Listen> {
    let tls = match (&args.tls_cert, &args.tls_key) {
        (Some(certificate), Some(key)) => Some(Tls::open(certificate, key).map_err(|message| anyhow!(message))?),
        _ => None,
    };
    Ok(match &args.unix_socket {
        Some(path) => Listen::Socket(path.clone()),
        None => Listen::Address { host: args.host.clone(), port: args.port, tls },
    })
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (host, 0).to_socket_addrs().is_ok_and(|mut addresses| addresses.all(|address| address.ip().is_loopback()))
}

/// Standard output may be closed: then nobody wants to know.
fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}").and_then(|()| std::io::stdout().flush());
}

/// A model was put out of memory: what it took is for others.
fn unloaded(name: &str) {
    attend_kernels::give_freed_memory_back();
    say(&format!("unloaded: {name}"));
}

/// Bytes of a model's files, where they are on this machine already.
fn size(model: &OsStr) -> Option<u64> {
    let path = match models::parse(model).ok()? {
        models::Wanted::Path(path) => path,
        _ => match models::find(model, &Folder::locate().ok()?).ok()? {
            Found::At(path) => path,
            Found::ToFetch(_) => return None,
        },
    };
    let data = path.metadata().ok()?;
    if data.is_file() {
        return Some(data.len());
    }
    let weights =
        |path: &Path| path.extension().is_some_and(|kind| kind == "safetensors" || kind == "gguf" || kind == "bin");
    let files = path.read_dir().ok()?.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| weights(path));
    Some(files.filter_map(|path| Some(path.metadata().ok()?.len())).sum())
}

/// How a model is brought into memory, on its own thread.
fn loader(args: &ServeArgs, model: OsString, draft: Option<OsString>) -> Loader {
    let compute = args.compute.clone();
    let bounds = Bounds {
        kv_memory: args.kv_memory,
        prefix_cache: args.prefix_cache,
        parallel: args.parallel.and_then(NonZeroUsize::new),
    };
    Box::new(move || {
        let parts = parts(&model, &compute, bounds).and_then(|parts| {
            let draft = draft.as_ref().map(|draft| {
                let parts = parts_of_draft(draft, &compute).context("--draft")?;
                Ok::<_, anyhow::Error>(Box::new(parts))
            });
            Ok(Parts { draft: draft.transpose()?, ..parts })
        });
        parts.map_err(|error| error::whole(&error))
    })
}

fn parts(model: &OsString, compute: &ComputeArgs, bounds: Bounds) -> Result<Parts> {
    let Session { loaded, tokenizer, template, .. } = session::open(&ModelArg { model: Some(model.clone()) }, compute)?;
    let (tokenizer, options) = (Arc::new(tokenizer), session::engine_options(compute));
    Ok(Parts { loaded, tokenizer, template, draft: None, options, bounds })
}

fn parts_of_draft(draft: &OsString, compute: &ComputeArgs) -> Result<Parts> {
    parts(draft, &session::draft_compute(compute), Bounds::default())
}

/// What a loaded model can hold.
fn ready(model: &Model) -> String {
    let Some(Ok(facts)) = model.state() else { return String::new() };
    if let Some(notice) = &facts.notice {
        screen::notice(&format!("note: {}: {notice}", model.name));
    }
    let tasks: Vec<&str> = facts.tasks.iter().map(|task| task.name()).collect();
    let mut text = format!("ready: {} in {:.1} s ({})", model.name, facts.load_seconds, tasks.join(", "));
    if facts.kv_bytes > 0 {
        let tokens = facts.limits.tokens as u64;
        let context = facts.context.map_or("any length".into(), |context| screen::grouped(context as u64));
        text += &format!(
            "\n       context {context}, {} sequences at once, {} for keys and values: {} tokens in every layer",
            facts.limits.sequences,
            screen::bytes(facts.kv_bytes),
            screen::grouped(tokens)
        );
    }
    for adapter in &facts.adapters {
        for notice in &adapter.notices {
            screen::notice(&format!("note: {}: {notice}", adapter.name));
        }
        text += &format!("\n       adapter {} ({})", adapter.name, screen::bytes(adapter.bytes));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_given_or_the_models_own() {
        let read = |word: &str| named(word.into()).map(|named| (named.name, named.model));
        let several = named("chat, gpt-4o,default=owner/repo".into()).expect("names");
        assert_eq!((several.name.as_str(), several.aliases.join(" ").as_str()), ("chat", "gpt-4o default"));
        assert!(named("a,,b=x".into()).is_err() && named(",a=x".into()).is_err());
        assert_eq!(read("chat=owner/repo:Q4_K_M"), Ok(("chat".into(), "owner/repo:Q4_K_M".into())));
        assert_eq!(read("owner/repo"), Ok(("owner/repo".into(), "owner/repo".into())));
        assert_eq!(read("/"), Ok(("/".into(), "/".into())));
        assert!(read("=x").is_err() && read("x=").is_err());
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a=b.gguf");
        std::fs::write(&path, "").expect("written");
        let word = path.to_str().expect("text");
        assert_eq!(read(word), Ok(("a=b".into(), word.into())));
    }

    #[test]
    fn adapters_belong_to_the_model_before_the_colon() {
        let models = ["base", "owner/repo:Q4_K_M"].map(|name| Named {
            name: name.into(),
            aliases: Vec::new(),
            model: OsString::from(name),
        });
        let read = |words: &[&str]| -> Result<Vec<(String, String, PathBuf, f64)>, String> {
            let adapter = words.iter().map(|word| named_adapter((*word).into())).collect::<Result<_, _>>()?;
            let args = ServeArgs { adapter, ..args() };
            let found = adapters(&args, &models).map_err(|error| error.to_string())?;
            Ok(found.into_iter().map(|(model, at)| (model, at.name, at.path, at.strength)).collect())
        };
        let one = |model: &str, name: &str, strength| (model.into(), name.into(), PathBuf::from("p/a"), strength);
        assert_eq!(read(&["law=p/a"]), Ok(vec![one("base", "law", 1.0)]));
        let several = read(&["base:law=p/a=0.5", "owner/repo:Q4_K_M:law2=p/a"]);
        assert_eq!(several, Ok(vec![one("base", "law", 0.5), one("owner/repo:Q4_K_M", "law2", 1.0)]));
        for wrong in [&["law"][..], &["=p"], &["law="], &["none:law=p/a"], &["base:=p/a"], &["base=p/a"]] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
        assert!(read(&["law=p/a", "base:law=p/b"]).is_err_and(|message| message.contains("law")));
    }

    fn args() -> ServeArgs {
        #[derive(Debug, clap::Parser)]
        struct Only {
            #[command(flatten)]
            args: ServeArgs,
        }
        <Only as clap::Parser>::parse_from(["serve"]).args
    }
}
