//! What the log and the figures say of a request, written down when the last byte of its answer is gone.

use super::app::App;
use crate::figures::Answered;
use crate::host::ask::Asker;
use crate::host::roster::{Keep, Lease};
use crate::limits::Limits;
use serde_json::json;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// A request's record.
#[derive(Debug)]
pub struct Record {
    app: Arc<App>,
    pub id: String,
    method: String,
    came: Instant,
    route: OnceLock<String>,
    model: OnceLock<String>,
    who: AtomicUsize,
    status: AtomicU16,
    pub prompt_tokens: AtomicUsize,
    pub answer_tokens: AtomicUsize,
    complete: std::sync::atomic::AtomicBool,
    detail: Mutex<Option<String>>,
    /// What keeps the model in memory.
    lease: OnceLock<Lease>,
}

impl Record {
    pub fn begin(app: Arc<App>, method: &str) -> Arc<Record> {
        let id = app.fresh_id();
        Arc::new(Record {
            app,
            id,
            method: method.chars().take(16).collect(),
            came: Instant::now(),
            route: OnceLock::new(),
            model: OnceLock::new(),
            who: AtomicUsize::new(0),
            status: AtomicU16::new(0),
            prompt_tokens: AtomicUsize::new(0),
            answer_tokens: AtomicUsize::new(0),
            complete: false.into(),
            detail: Mutex::new(None),
            lease: OnceLock::new(),
        })
    }

    pub fn app(&self) -> &Arc<App> {
        &self.app
    }

    pub fn limits(&self) -> &Limits {
        &self.app.limits
    }

    pub fn route(&self, route: &str) {
        let _ = self.route.set(route.to_owned());
    }

    pub fn model(&self, model: &str) {
        let _ = self.model.set(model.to_owned());
    }

    /// The model stays in memory as long as this record.
    pub fn hold(&self, lease: Lease) {
        let _ = self.lease.set(lease);
    }

    /// The model stays so long behind this request.
    pub fn keep(&self, keep: Keep) {
        if let Some(lease) = self.lease.get() {
            lease.keep(keep);
        }
    }

    /// Who asks, as [`super::guard::Keys::check`] counts.
    pub fn asks(&self, who: usize) {
        self.who.store(who, Ordering::Relaxed);
    }

    /// Who asks, how urgently, and what keeps the pasts of this request from those of others: the key it came with, and what it
    /// says itself.
    pub fn asker(&self, salt: Option<&str>, priority: i64) -> Asker {
        let who = self.who.load(Ordering::Relaxed);
        let salt = match (who, salt) {
            (0, None) => String::new(),
            (who, own) => format!("{who} {}", own.unwrap_or_default()),
        };
        Asker { salt, client: who.to_string(), priority }
    }

    pub fn status(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    pub fn detail(&self, detail: String) {
        *self.detail.lock().unwrap_or_else(PoisonError::into_inner) = Some(detail);
    }

    /// The whole answer was given to the connection.
    pub fn complete(&self) {
        self.complete.store(true, Ordering::Relaxed);
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // A client that left before there was an answer.
        let status = Some(self.status.load(Ordering::Relaxed)).filter(|&status| status > 0).unwrap_or(499);
        let route = self.route.get().map_or("none", String::as_str);
        self.app.figures.answered.get_or_create(&Answered { route: route.into(), status }).inc();
        let count = |count: &AtomicUsize| Some(count.load(Ordering::Relaxed)).filter(|&count| count > 0);
        let detail = self.detail.lock().unwrap_or_else(PoisonError::into_inner).take();
        let level = if status >= 500 { "error" } else { "info" };
        self.app.log.say(
            level,
            "request",
            json!({
                "request_id": self.id,
                "method": self.method,
                "route": route,
                "status": status,
                "milliseconds": (self.came.elapsed().as_secs_f64() * 1e4).round() / 10.0,
                "model": self.model.get(),
                "prompt_tokens": count(&self.prompt_tokens),
                "completion_tokens": count(&self.answer_tokens),
                "left": (!self.complete.load(Ordering::Relaxed)).then_some(true),
                "detail": detail,
            }),
        );
    }
}
