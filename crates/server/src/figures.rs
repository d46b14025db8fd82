//! What a server counts, in the text format of Prometheus.

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfModel {
    model: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfAdapter {
    model: String,
    adapter: String,
}

/// A route and the status that it was answered with.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Answered {
    pub route: String,
    pub status: u16,
}

/// All figures of a server.
#[derive(Debug)]
pub struct Figures {
    registry: Registry,
    pub answered: Family<Answered, Counter>,
    pub connections: Gauge,
    adapters: Family<OfAdapter, Counter>,
    models: Families,
}

#[derive(Debug, Clone)]
struct Families {
    loaded: Family<OfModel, Gauge>,
    bytes: Family<OfModel, Gauge>,
    running: Family<OfModel, Gauge>,
    waiting: Family<OfModel, Gauge>,
    kv_tokens: Family<OfModel, Gauge>,
    kv_tokens_limit: Family<OfModel, Gauge>,
    kv_bytes: Family<OfModel, Gauge>,
    kv_bytes_limit: Family<OfModel, Gauge>,
    prefix_bytes: Family<OfModel, Gauge>,
    prefix_lookups: Family<OfModel, Counter>,
    prefix_hits: Family<OfModel, Counter>,
    prefix_tokens: Family<OfModel, Counter>,
    preemptions: Family<OfModel, Counter>,
    prompt_tokens: Family<OfModel, Counter>,
    generated_tokens: Family<OfModel, Counter>,
    embedded_tokens: Family<OfModel, Counter>,
    guesses_offered: Family<OfModel, Counter>,
    guesses_right: Family<OfModel, Counter>,
    faults: Family<OfModel, Counter>,
    first_token: Family<OfModel, Histogram>,
    inter_token: Family<OfModel, Histogram>,
    queued: Family<OfModel, Histogram>,
}

/// The figures of one model.
#[derive(Debug, Clone)]
pub struct ModelFigures {
    /// Whether it is in memory.
    pub loaded: Gauge,
    /// The most bytes that it takes there.
    pub bytes: Gauge,
    /// Requests that are worked on.
    pub running: Gauge,
    /// Requests that have not begun.
    pub waiting: Gauge,
    pub kv_tokens: Gauge,
    pub kv_tokens_limit: Gauge,
    pub kv_bytes: Gauge,
    pub kv_bytes_limit: Gauge,
    /// Bytes of keys and values that are kept for requests that begin alike.
    pub prefix_bytes: Gauge,
    pub prefix_lookups: Counter,
    pub prefix_hits: Counter,
    pub prefix_tokens: Counter,
    pub preemptions: Counter,
    pub prompt_tokens: Counter,
    pub generated_tokens: Counter,
    /// Tokens read for vectors, scores and labels.
    pub embedded_tokens: Counter,
    pub guesses_offered: Counter,
    pub guesses_right: Counter,
    /// Requests that failed through no fault of their own.
    pub faults: Counter,
    pub first_token: Histogram,
    pub inter_token: Histogram,
    pub queued: Histogram,
}

impl ModelFigures {
    /// It is in memory.
    pub fn present(&self, bytes: u64) {
        self.loaded.set(1);
        self.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// It is not, and nothing is held for it.
    pub fn absent(&self) {
        let ModelFigures { loaded, bytes, running, kv_tokens, kv_tokens_limit, .. } = self;
        let ModelFigures { kv_bytes, kv_bytes_limit, prefix_bytes, .. } = self;
        for gauge in [loaded, bytes, running, kv_tokens, kv_tokens_limit, kv_bytes, kv_bytes_limit, prefix_bytes] {
            gauge.set(0);
        }
    }
}

/// From a tenth of a millisecond to over a minute.
fn times() -> Histogram {
    Histogram::new(exponential_buckets(1e-4, 2.0, 20))
}

impl Families {
    fn register(registry: &mut Registry) -> Families {
        let mut gauge = |name, help| {
            let family = Family::<OfModel, Gauge>::default();
            registry.register(name, help, family.clone());
            family
        };
        let loaded = gauge("model_loaded", "Whether the model is in memory");
        let bytes = gauge("model_bytes", "The most bytes that the model takes while it is in memory");
        let running = gauge("requests_running", "Requests that are worked on");
        let waiting = gauge("requests_waiting", "Requests that have not begun");
        let kv_tokens = gauge("kv_tokens", "Tokens whose keys and values are held");
        let kv_tokens_limit = gauge("kv_tokens_limit", "The most tokens whose keys and values are held");
        let kv_bytes = gauge("kv_bytes", "Bytes of keys and values that are held");
        let kv_bytes_limit = gauge("kv_bytes_limit", "The most bytes of keys and values that are held");
        let prefix_bytes = gauge("prefix_bytes", "Bytes of keys and values kept for requests that begin alike");
        let mut counter = |name, help| {
            let family = Family::<OfModel, Counter>::default();
            registry.register(name, help, family.clone());
            family
        };
        let preemptions = counter("preemptions", "Requests put back because others needed their room");
        let prefix_lookups = counter("prefix_lookups", "Prompts that could have begun with a kept prefix");
        let prefix_hits = counter("prefix_hits", "Prompts that began with a kept prefix");
        let prefix_tokens = counter("prefix_tokens", "Tokens of prompts that did not have to be computed");
        let prompt_tokens = counter("prompt_tokens", "Tokens of prompts");
        let generated_tokens = counter("generated_tokens", "Tokens generated");
        let embedded_tokens = counter("embedded_tokens", "Tokens read for vectors, scores and labels");
        let guesses_offered = counter("guesses_offered", "Tokens guessed ahead");
        let guesses_right = counter("guesses_right", "Tokens guessed ahead that were right");
        let faults = counter("faults", "Requests that failed through no fault of their own");
        let mut time = |name, help| {
            let family: Family<OfModel, Histogram> = Family::new_with_constructor(times as fn() -> Histogram);
            registry.register_with_unit(name, help, Unit::Seconds, family.clone());
            family
        };
        let first_token = time("time_to_first_token", "From a request's arrival to its first token");
        let inter_token = time("inter_token_latency", "Between two tokens of an answer");
        let queued = time("queue_time", "From a request's arrival to its beginning");
        Families {
            loaded,
            bytes,
            running,
            waiting,
            kv_tokens,
            kv_tokens_limit,
            kv_bytes,
            kv_bytes_limit,
            prefix_bytes,
            prefix_lookups,
            prefix_hits,
            prefix_tokens,
            preemptions,
            prompt_tokens,
            generated_tokens,
            embedded_tokens,
            guesses_offered,
            guesses_right,
            faults,
            first_token,
            inter_token,
            queued,
        }
    }
}

impl Default for Figures {
    fn default() -> Figures {
        let mut registry = Registry::with_prefix("attend");
        let answered = Family::default();
        registry.register("http_requests", "Requests by route and status", answered.clone());
        let connections = Gauge::default();
        registry.register("http_connections", "Open connections", connections.clone());
        let adapters = Family::default();
        registry.register("adapter_requests", "Requests of each adapter", adapters.clone());
        let models = Families::register(&mut registry);
        Figures { registry, answered, connections, adapters, models }
    }
}

impl Figures {
    /// The figures of a model, which begin at nothing.
    pub fn of_model(&self, name: &str) -> ModelFigures {
        let of = OfModel { model: name.to_owned() };
        let families = &self.models;
        ModelFigures {
            loaded: families.loaded.get_or_create_owned(&of),
            bytes: families.bytes.get_or_create_owned(&of),
            running: families.running.get_or_create_owned(&of),
            waiting: families.waiting.get_or_create_owned(&of),
            kv_tokens: families.kv_tokens.get_or_create_owned(&of),
            kv_tokens_limit: families.kv_tokens_limit.get_or_create_owned(&of),
            kv_bytes: families.kv_bytes.get_or_create_owned(&of),
            kv_bytes_limit: families.kv_bytes_limit.get_or_create_owned(&of),
            prefix_bytes: families.prefix_bytes.get_or_create_owned(&of),
            prefix_lookups: families.prefix_lookups.get_or_create_owned(&of),
            prefix_hits: families.prefix_hits.get_or_create_owned(&of),
            prefix_tokens: families.prefix_tokens.get_or_create_owned(&of),
            preemptions: families.preemptions.get_or_create_owned(&of),
            prompt_tokens: families.prompt_tokens.get_or_create_owned(&of),
            generated_tokens: families.generated_tokens.get_or_create_owned(&of),
            embedded_tokens: families.embedded_tokens.get_or_create_owned(&of),
            guesses_offered: families.guesses_offered.get_or_create_owned(&of),
            guesses_right: families.guesses_right.get_or_create_owned(&of),
            faults: families.faults.get_or_create_owned(&of),
            first_token: families.first_token.get_or_create_owned(&of),
            inter_token: families.inter_token.get_or_create_owned(&of),
            queued: families.queued.get_or_create_owned(&of),
        }
    }

    /// Counts the lines that a log has lost, too.
    pub fn count_lost_lines(&mut self, lost: &Counter) {
        self.registry.register("log_lines_lost", "Lines of the log that found no room", lost.clone());
    }

    /// The requests of an adapter of a model.
    pub fn of_adapter(&self, model: &str, adapter: &str) -> Counter {
        self.adapters.get_or_create_owned(&OfAdapter { model: model.to_owned(), adapter: adapter.to_owned() })
    }

    /// An adapter is gone.
    pub fn forget_adapter(&self, model: &str, adapter: &str) {
        self.adapters.remove(&OfAdapter { model: model.to_owned(), adapter: adapter.to_owned() });
    }

    /// Everything as text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode(&mut out, &self.registry);
        out
    }
}
