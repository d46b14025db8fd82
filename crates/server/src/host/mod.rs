//! A model that is served: loaded on a thread of its own, which then computes it; others make requests ready for it.

pub mod adapter;
pub mod ask;
mod blend;
mod health;
mod prepare;
mod queue;
pub mod roster;
mod tools;
mod toolset;
mod turns;

pub use tools::{Bounds, Parts, Tools, no_infill};
pub use toolset::Toolset;

use crate::failure::Failure;
use crate::figures::ModelFigures;
use adapter::{Adapter, AdapterAt, Held, Scaled};
use ask::{Compute, Embed, Generate, Gone, Job, Listener, Make, Said, Ticket};
use attend_engine::tasks::Watch;
use attend_engine::tasks::embed::Embedding;
use attend_engine::{Limits, PrefixCache, Variant, tasks};
use attend_nn::CacheBlock;
use attend_text::{Form, Tokenizer};
use blend::Blends;
use health::Health;
use queue::Queue;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{oneshot, watch};
use turns::Turns;

/// Brings a model into memory, as often as that is wanted.
pub type Loader = Box<dyn Fn() -> Result<Parts, String> + Send>;

/// What is known of a loaded model.
#[derive(Debug, Clone)]
pub struct Facts {
    pub tasks: Vec<tasks::Task>,
    /// The most tokens of a sequence.
    pub context: Option<usize>,
    /// How much is worked on at once.
    pub limits: Limits,
    /// The most bytes of keys and values, those of a draft model among them; 0 where there are none.
    pub kv_bytes: u64,
    pub has_template: bool,
    /// How it marks thoughts and calls, where it has a template.
    pub form: Option<Form>,
    pub tokenizer: Arc<Tokenizer>,
    /// The architecture's name.
    pub family: &'static str,
    pub parameters: u64,
    /// Bytes of the weights in memory.
    pub weight_bytes: u64,
    /// The most bytes that it may take: weights, those of a draft model and of adapters that came with it, and all that may
    /// be kept of keys and values.
    pub most_bytes: u64,
    pub load_seconds: f64,
    /// What was assumed because no file says it.
    pub notice: Option<String>,
    /// The adapters that were loaded with it.
    pub adapters: Vec<Attached>,
    /// What requests begin with.
    prefixes: Option<PrefixCache<CacheBlock>>,
    /// Its adapters as requests want them.
    blends: Arc<Blends>,
}

/// An adapter as it was when its model was loaded; it may be gone since.
#[derive(Debug, Clone)]
pub struct Attached {
    pub name: String,
    pub bytes: u64,
    /// What was assumed because its files do not say it.
    pub notices: Vec<String>,
}

/// What a request may name: a served model, or an adapter of one, which is computed by the same thread.
#[derive(Debug)]
pub struct Model {
    pub name: String,
    /// Seconds of Unix time.
    pub created: u64,
    /// None: the model as its files have it.
    pub adapter: Option<Arc<Adapter>>,
    /// The adapters that a request wants, each as strong as it says.
    lora: Vec<Scaled>,
    host: Arc<Host>,
}

/// A model's thread, as the others see it.
#[derive(Debug)]
struct Host {
    state: OnceLock<Result<Facts, String>>,
    /// Whether the state is known.
    known: watch::Sender<bool>,
    /// Its sender goes when the thread has ended.
    gone: watch::Receiver<()>,
    /// It was put out on purpose.
    dismissed: Arc<AtomicBool>,
    /// The adapters that come with it.
    adapters: Vec<(String, Arc<Adapter>)>,
    jobs: Mutex<Sender<Job>>,
    queue: Arc<Queue>,
    health: Arc<Health>,
}

/// Adapters that are loaded with a model.
pub type Adapters = Vec<(AdapterAt, Arc<Adapter>)>;

/// Threads that make requests ready.
const PREPARERS: usize = 2;

impl Model {
    /// Begins to load a model. Of the last two the first is called when it can be asked, or cannot be loaded, and the second
    /// when it was put out and its memory is free.
    ///
    /// # Errors
    /// A system that gives no thread.
    pub fn spawn(
        name: String,
        loader: Arc<Mutex<Loader>>,
        (queue, figures): (usize, ModelFigures),
        adapters: Adapters,
        (loaded, unloaded): (impl FnOnce(&Model) + Send + 'static, impl FnOnce(&str) + Send + 'static),
    ) -> std::io::Result<Arc<Model>> {
        let (sender, jobs) = mpsc::channel();
        let (leaves, gone) = watch::channel(());
        let host = Arc::new(Host {
            state: OnceLock::new(),
            known: watch::Sender::new(false),
            gone,
            dismissed: Arc::default(),
            adapters: adapters.iter().map(|(at, adapter)| (at.name.clone(), Arc::clone(adapter))).collect(),
            jobs: Mutex::new(sender),
            queue: Queue::new(queue, figures.waiting.clone()),
            health: Arc::new(Health::default()),
        });
        let model = Arc::new(Model { name, created: now(), adapter: None, lora: Vec::new(), host });
        // The thread must not keep the model, and with it the sender of jobs, alive.
        let (weak, health) = (Arc::downgrade(&model), Arc::clone(&model.host.health));
        let own = figures.clone();
        let tell = move |state: Result<Facts, String>| {
            if let Some(model) = weak.upgrade() {
                if let Ok(facts) = &state {
                    own.present(facts.most_bytes);
                }
                let _ = model.host.state.set(state);
                // Whoever waits goes on, whatever becomes of those that are told.
                model.host.known.send_replace(true);
                loaded(&model);
            }
        };
        let end = End {
            host: Arc::downgrade(&model.host),
            health: Arc::clone(&health),
            dismissed: Arc::clone(&model.host.dismissed),
            figures: figures.clone(),
            name: model.name.clone(),
            unloaded: Some(Box::new(unloaded)),
            _leaves: leaves,
        };
        let thread = std::thread::Builder::new().name(format!("model {}", model.name));
        thread.spawn(move || {
            let _end = end;
            live(&loader, jobs, (adapters, figures, health), tell);
        })?;
        Ok(model)
    }

    /// Waits until it can be asked, or cannot be loaded.
    pub async fn loaded(&self) {
        // The sender is this model's own.
        let _ = self.host.known.subscribe().wait_for(|known| *known).await;
    }

    /// Its sender goes when the model's memory is free.
    pub fn gone(&self) -> watch::Receiver<()> {
        self.host.gone.clone()
    }

    /// Its thread computes no more.
    pub fn has_ended(&self) -> bool {
        self.host.health.has_ended()
    }

    /// It is put out: its thread ends when what it was asked is answered.
    pub fn dismiss(&self) {
        self.host.dismissed.store(true, Ordering::SeqCst);
    }

    /// One of the adapters that came with it.
    pub fn attached(&self, name: &str) -> Option<Arc<Adapter>> {
        self.host.adapters.iter().find(|(own, _)| own == name).map(|(_, adapter)| Arc::clone(adapter))
    }

    /// An adapter of this model under a name of its own.
    pub fn with_adapter(&self, name: String, adapter: Arc<Adapter>) -> Arc<Model> {
        let (created, host) = (now(), Arc::clone(&self.host));
        Arc::new(Model { name, created, adapter: Some(adapter), lora: Vec::new(), host })
    }

    /// This model with adapters of its own, for a request that says how strong each is.
    pub fn with_lora(&self, lora: Vec<Scaled>) -> Arc<Model> {
        let (name, host) = (self.name.clone(), Arc::clone(&self.host));
        Arc::new(Model { name, created: self.created, adapter: None, lora, host })
    }

    /// Reads an adapter of this model, beside the thread that computes. `find` says where it lies.
    ///
    /// # Errors
    /// As [`Model::generate`], what `find` says, and files that are no adapter of this model.
    pub async fn read_adapter(
        &self,
        find: impl FnOnce() -> Result<AdapterAt, Failure> + Send + 'static,
    ) -> Result<Held, Failure> {
        self.task(move |Toolset { tools, .. }| {
            let AdapterAt { path, strength, .. } = find()?;
            let held = tools.attach(&path, strength).map_err(|error| Failure::bad(error.to_string()))?;
            Ok(Box::new(move |_| Ok(held)))
        })
        .await
    }

    /// Drops what was kept for requests of an adapter that nobody can name any more.
    pub fn forget(&self, adapter: &Adapter) {
        adapter.leave();
        let Some((Ok(facts), held)) = self.state().zip(adapter.held()) else { return };
        let own = held.variant.number();
        for number in facts.blends.forget(own).into_iter().chain([own]) {
            facts.prefixes.iter().for_each(|prefixes| prefixes.forget_variant(number));
        }
    }

    /// None while it is being loaded.
    pub fn state(&self) -> Option<Result<&Facts, &str>> {
        self.host.state.get().map(|state| state.as_ref().map_err(String::as_str))
    }

    /// # Errors
    /// A model that is being loaded, or could not be.
    pub fn facts(&self) -> Result<&Facts, Failure> {
        match self.state() {
            Some(Ok(facts)) => Ok(facts),
            Some(Err(error)) => Err(Failure::fault(error)),
            None => Err(Failure::loading(&self.name)),
        }
    }

    /// Why it does not answer, if so.
    pub fn trouble(&self) -> Option<&'static str> {
        match self.state() {
            None => Some("it is being loaded"),
            Some(Err(_)) => Some("it could not be loaded"),
            Some(Ok(_)) => self.host.health.trouble(),
        }
    }

    /// Bytes of its weights; of an adapter those that it adds to its model's. 0 while it is being loaded.
    pub fn bytes(&self) -> u64 {
        match (&self.adapter, self.state()) {
            (Some(adapter), _) => adapter.held().map_or(0, |held| held.bytes),
            (None, Some(Ok(facts))) => facts.weight_bytes,
            (None, Some(Err(_)) | None) => 0,
        }
    }

    /// Cuts the work that runs.
    pub fn halt(&self) {
        self.host.health.halt();
    }

    /// What computes it in place of its model.
    fn variant(&self) -> Result<Option<Variant>, Failure> {
        let Some(adapter) = &self.adapter else { return Ok(None) };
        let held = adapter.held().ok_or_else(|| Failure::loading(&self.name))?;
        adapter.requests.inc();
        Ok(Some(held.variant.clone()))
    }

    fn ticket(&self) -> Result<Ticket, Failure> {
        self.facts()?;
        if self.host.health.is_halted() {
            return Err(Failure::stopping());
        }
        let queue = &self.host.queue;
        let place = queue.enter().ok_or_else(|| Failure::busy(queue.most()))?;
        for own in self.lora.iter().filter(|own| own.scale != 0.0) {
            own.adapter.requests.inc();
        }
        let (variant, lora) = (self.variant()?, self.lora.clone());
        Ok(Ticket { came: Instant::now(), place: Some(Arc::new(place)), variant, lora })
    }

    fn send(&self, job: Job) -> Result<(), Failure> {
        let jobs = self.host.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.send(job).map_err(|_| lost())
    }

    /// Asks for answers. What is said of them comes from the receiver; dropping it cancels the request.
    ///
    /// # Errors
    /// A model that is not there, and a queue that is full.
    pub fn generate(&self, ask: Generate) -> Result<UnboundedReceiver<Said>, Failure> {
        let ticket = self.ticket()?;
        let (to, from): (Listener, _) = unbounded_channel();
        self.send(Job::Generate(ask, to, ticket))?;
        Ok(from)
    }

    /// Asks for vectors.
    ///
    /// # Errors
    /// As [`Model::generate`], and what the inputs are at fault for.
    pub async fn embed(&self, embed: Embed) -> Result<Vec<Embedding>, Failure> {
        let ticket = self.ticket()?;
        let (to, from) = oneshot::channel();
        self.send(Job::Embed(embed, to, ticket))?;
        from.await.unwrap_or_else(|_| Err(self.silence()))
    }

    /// Asks for anything else that the model's tools can do. `make` is called beside the thread that computes, and what it
    /// returns on that thread.
    ///
    /// # Errors
    /// As [`Model::generate`], and what the two say.
    pub async fn task<T: Send + 'static>(
        &self,
        make: impl for<'t> FnOnce(Toolset<'t>) -> Result<Work<'t, T>, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let ticket = self.ticket()?;
        let (to, from) = oneshot::channel();
        let to = Reply(Arc::new(Mutex::new(Some(to))));
        let waiting = to.clone();
        let gone: Gone = Box::new(move || waiting.is_gone());
        let make: Make = Box::new(move |tools| match tools.and_then(make) {
            Ok(work) => {
                let compute: Compute<'_> = Box::new(move |watch| to.give(work(watch)));
                Some(compute)
            }
            Err(failure) => {
                to.give(Err(failure));
                None
            }
        });
        self.send(Job::Task(make, gone, ticket))?;
        from.await.unwrap_or_else(|_| Err(self.silence()))
    }

    /// Why nothing was said.
    pub fn silence(&self) -> Failure {
        if self.host.health.is_halted() { Failure::stopping() } else { lost() }
    }
}

/// What a task does on the thread that computes.
pub type Work<'t, T> = Box<dyn FnOnce(&mut Watch<'_>) -> Result<T, Failure> + Send + 't>;

type Waiting<T> = Option<oneshot::Sender<Result<T, Failure>>>;

/// Where the answer to a task goes, once.
struct Reply<T>(Arc<Mutex<Waiting<T>>>);

impl<T> Clone for Reply<T> {
    fn clone(&self) -> Reply<T> {
        Reply(Arc::clone(&self.0))
    }
}

impl<T> Reply<T> {
    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give(&self, outcome: Result<T, Failure>) {
        if let Some(to) = self.waiting().take() {
            // A receiver that is gone wants nothing.
            let _ = to.send(outcome);
        }
    }

    fn is_gone(&self) -> bool {
        self.waiting().as_ref().is_none_or(oneshot::Sender::is_closed)
    }
}

/// Seconds of Unix time.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn lost() -> Failure {
    Failure::fault("the model's thread gave no answer")
}

/// Called with the name of a model that was put out, when its memory is free.
type Unloaded = Box<dyn FnOnce(&str) + Send>;

/// Says that the thread has ended, however it does.
struct End {
    host: Weak<Host>,
    health: Arc<Health>,
    dismissed: Arc<AtomicBool>,
    figures: ModelFigures,
    name: String,
    unloaded: Option<Unloaded>,
    _leaves: watch::Sender<()>,
}

impl Drop for End {
    fn drop(&mut self) {
        self.health.end();
        self.figures.absent();
        // A panic on the way: nobody is to wait for ever.
        if let Some(host) = self.host.upgrade() {
            let _ = host.state.set(Err("loading the model panicked".into()));
            host.known.send_replace(true);
        }
        if let Some(unloaded) = self.unloaded.take()
            && self.dismissed.load(Ordering::SeqCst)
        {
            unloaded(&self.name);
        }
    }
}

/// Says that nothing is computed any more, however that came, while those that make requests ready may still wait for some.
struct Over<'h>(&'h Health);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The life of a model's thread.
fn live(
    loader: &Mutex<Loader>,
    jobs: Receiver<Job>,
    (adapters, figures, health): (Adapters, ModelFigures, Arc<Health>),
    tell: impl FnOnce(Result<Facts, String>),
) {
    let started = Instant::now();
    let loaded = catch_unwind(AssertUnwindSafe(|| loader.lock().unwrap_or_else(PoisonError::into_inner)()));
    let parts = match loaded.unwrap_or_else(|_| Err("loading the model panicked".into())) {
        Ok(parts) => parts,
        Err(error) => return tell(Err(error)),
    };
    let draft = match parts.draft.as_deref().map(tools::engine).transpose() {
        Ok(draft) => draft,
        Err(error) => return tell(Err(format!("the draft model: {error}"))),
    };
    let tools = match Tools::new(&parts, draft.as_ref()) {
        Ok(tools) => tools,
        Err(error) => return tell(Err(error)),
    };
    let mut attached = Vec::new();
    for (AdapterAt { name, path, strength }, adapter) in adapters {
        let held = catch_unwind(AssertUnwindSafe(|| tools.attach(&path, strength)));
        match held {
            Ok(Ok(held)) => {
                attached.push(Attached { name, bytes: held.bytes, notices: held.notices.clone() });
                adapter.set(held);
            }
            Ok(Err(error)) => return tell(Err(format!("the adapter {name:?}: {error}"))),
            Err(_) => return tell(Err(format!("the adapter {name:?}: loading it panicked"))),
        }
    }
    let spec = parts.loaded.model.spec();
    let drafted = parts.draft.as_ref().map_or(0, |draft| draft.loaded.model.weight_bytes());
    let weights = parts.loaded.model.weight_bytes() as u64;
    let beside = attached.iter().fold(drafted as u64, |sum, adapter: &Attached| sum.saturating_add(adapter.bytes));
    let facts = Facts {
        most_bytes: weights.saturating_add(beside).saturating_add(tools.most_kept()),
        tasks: tasks::Task::ALL.into_iter().filter(|task| task.fits(spec)).collect(),
        context: tools.engine.as_ref().map_or(spec.context, |engine| engine.surroundings().context),
        limits: tools.limits,
        kv_bytes: tools.engine.as_ref().map_or(0, |engine| tools.limits.bytes(engine.held_per_token())),
        has_template: parts.template.is_some(),
        form: tools.form.clone(),
        tokenizer: Arc::clone(&parts.tokenizer),
        family: parts.loaded.source.architecture,
        parameters: u64::try_from(parts.loaded.source.parameters()).unwrap_or(u64::MAX),
        weight_bytes: weights,
        load_seconds: started.elapsed().as_secs_f64(),
        notice: tools.notice().map(str::to_owned),
        adapters: attached,
        prefixes: tools.engine.as_ref().and_then(|engine| engine.prefix_cache().cloned()),
        blends: Arc::clone(&tools.blends),
    };
    if let Some(engine) = &tools.engine {
        figures.kv_tokens_limit.set(i64::try_from(facts.limits.tokens).unwrap_or(i64::MAX));
        figures.kv_bytes_limit.set(i64::try_from(tools.limits.bytes(engine.bytes_per_token())).unwrap_or(i64::MAX));
    }
    let schedule = tools.engine.as_ref().map(|engine| engine.schedule(tools.limits).with_even_steps());
    let (sender, inbox) = mpsc::channel();
    let jobs = Mutex::new(jobs);
    std::thread::scope(|scope| {
        let own = Arc::clone(&health);
        let _over = Over(&own);
        for _ in 0..PREPARERS {
            let (sender, tools, jobs) = (sender.clone(), &tools, &jobs);
            scope.spawn(move || prepare::run(tools, jobs, &sender));
        }
        scope.spawn(|| prepare::warm(&tools));
        drop(sender);
        tell(Ok(facts));
        Turns::new(schedule, Some(&tools), inbox, (figures, health)).run();
    });
}
