//! The server: bound, then run until it is told to stop.

use super::app::{App, Attach, Entry};
use super::clock::{Busy, Clock, Timed};
use super::guard::{Keys, check_names};
use super::listen::{Address, Bound, Caller, Listen, Listener, Stream};
use super::log::Log;
use super::record::Record;
use super::refusal::Worded;
use super::reply::Shape;
use super::routes;
use super::tls::greet;
use crate::failure::Failure;
use crate::figures::{Answered, Figures};
use crate::host::adapter::AdapterAt;
use crate::host::roster::{Offer, Policy, Roster, Tell};
use crate::limits::Limits;
use crate::page;
use axum::Router;
use axum::body::{Body, HttpBody};
use axum::http::{HeaderName, HeaderValue, Request, Response, header};
use futures_util::FutureExt;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{Semaphore, mpsc, watch};

/// What a server is made of.
pub struct Options {
    pub listen: Listen,
    pub keys: Keys,
    pub limits: Limits,
    pub log: Arc<Log>,
    /// The models; the first answers where none is named.
    pub models: Vec<Offer>,
    /// Which of them are in memory.
    pub policy: Policy,
    /// Adapters that are loaded with them, each with the name of its model.
    pub adapters: Vec<(String, AdapterAt)>,
    /// The folder from which requests may have adapters loaded; None: they may not.
    pub adapter_folder: Option<PathBuf>,
    pub tell: Tell,
}

/// A server with its place.
pub struct Server {
    bound: Bound,
    address: Address,
    options: Options,
}

/// After work was cut, so long may its last bytes take.
const LAST_BYTES: Duration = Duration::from_secs(5);

impl Server {
    /// Takes the port, or makes the socket.
    ///
    /// # Errors
    /// An address that is none, or that another program listens on, and a folder of adapters that is none.
    pub fn bind(mut options: Options) -> Result<Server, String> {
        if let Some(folder) = &mut options.adapter_folder {
            let found = folder.canonicalize().map_err(|error| format!("{}: {error}", folder.display()))?;
            if !found.is_dir() {
                return Err(format!("{}: it is no folder", folder.display()));
            }
            *folder = found;
        }
        let (bound, address) = Bound::take(options.listen.clone())?;
        Ok(Server { bound, address, options })
    }

    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Loads the models and answers requests until `stop` is done; then running work is finished, or cut when it takes too
    /// long.
    ///
    /// # Errors
    /// A model that cannot be loaded, and a system that gives no threads.
    pub fn run(self, stop: impl Future<Output = ()>) -> Result<(), String> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        // The cores are for the models; serving connections takes little.
        builder.worker_threads(2).max_blocking_threads(4).thread_name("front").enable_all();
        let runtime = builder.build().map_err(|error| format!("no threads: {error}"))?;
        let log = Arc::clone(&self.options.log);
        let outcome = runtime.block_on(self.answer(stop));
        // A connection whose client reads nothing must not hold the end up.
        runtime.shutdown_timeout(Duration::from_millis(100));
        log.close();
        outcome
    }

    async fn answer(self, stop: impl Future<Output = ()>) -> Result<(), String> {
        let Server { bound, address, options } = self;
        let listener = bound.open().map_err(|error| format!("cannot listen on {address}: {error}"))?;
        let (failed, mut failure) = mpsc::unbounded_channel();
        let log = options.log;
        let mut figures = Figures::default();
        figures.count_lost_lines(log.lost());
        let mut offers = Vec::new();
        let (mut entries, mut behind) = (Vec::new(), Vec::new());
        let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        for (seat, offer) in options.models.into_iter().enumerate() {
            let entry = |name: &str, aliases: &[String], adapter| {
                Arc::new(Entry { name: name.to_owned(), aliases: aliases.to_owned(), created, seat, adapter })
            };
            let own = options.adapters.iter().filter(|(model, _)| *model == offer.name);
            let own: Vec<_> = own.map(|(_, at)| (at.clone(), figures.of_adapter(&offer.name, &at.name))).collect();
            for (at, _) in &own {
                behind.push(entry(&at.name, &[], Some(Attach::new(&offer.name, None))));
            }
            entries.push(entry(&offer.name, &offer.aliases, None));
            offers.push((offer, own));
        }
        entries.append(&mut behind);
        let policy = (options.policy, options.limits.queue);
        let roster = Roster::new(offers, policy, (&figures, Arc::clone(&log)), (options.tell, failed));
        roster.start().map_err(|error| format!("no thread: {error}"))?;
        // No page in a browser reaches a socket in the file system, whatever name it was asked under.
        let loopback = address.ip().is_some_and(|address| address.ip().is_loopback());
        let app = App::new((entries, Arc::clone(&roster)), options.limits, (options.keys, loopback), (figures, log));
        let app = Arc::new(app.with_adapters(options.adapter_folder));
        let (stopping, stopped) = watch::channel(false);
        let room = Arc::new(Semaphore::new(options.limits.connections));
        let outcome = tokio::select! {
            never = accept(&listener, &app, &room, &stopped) => match never {},
            never = roster.tend() => match never {},
            Some(error) = failure.recv() => Err(error),
            () = stop => Ok(()),
        };
        app.stop();
        // Nobody listens any more, and a socket's file is gone.
        drop(listener);
        app.log.say("info", "stopping", json!({}));
        let _ = stopping.send(true);
        if outcome.is_ok() {
            end(&app, &room).await;
        }
        app.log.say("info", "stopped", json!({}));
        outcome
    }
}

/// Waits for the connections to end; cuts what runs when that takes too long.
async fn end(app: &App, room: &Semaphore) {
    let all = u32::try_from(app.limits.connections).unwrap_or(u32::MAX);
    if tokio::time::timeout(app.limits.grace, room.acquire_many(all)).await.is_ok() {
        return;
    }
    app.roster.halt();
    let _ = tokio::time::timeout(LAST_BYTES, room.acquire_many(all)).await;
}

/// Takes connections for ever.
async fn accept(
    listener: &Listener,
    app: &Arc<App>,
    room: &Arc<Semaphore>,
    stopped: &watch::Receiver<bool>,
) -> Infallible {
    let router = routes::router(Arc::clone(app));
    loop {
        // The semaphore is never closed.
        let Ok(permit) = Arc::clone(room).acquire_owned().await else { return std::future::pending().await };
        let caller = match listener.accept().await {
            Ok(caller) => caller,
            Err(error) => {
                app.log.say("error", "accept", json!({"error": error.to_string()}));
                // Most often there are no descriptors left; soon there may be.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let (app, router, stopped) = (Arc::clone(app), router.clone(), stopped.clone());
        tokio::spawn(async move {
            app.figures.connections.inc();
            match caller {
                Caller::Plain(stream) => connection(stream, &app, router, stopped).await,
                // A greeting may take as long as a head.
                Caller::Tls(stream, acceptor) => {
                    if let Ok(Ok(stream)) = tokio::time::timeout(app.limits.head_time, greet(stream, &acceptor)).await {
                        connection(stream, &app, router, stopped).await;
                    }
                }
            }
            app.figures.connections.dec();
            drop(permit);
        });
    }
}

/// Serves one connection.
async fn connection(stream: impl Stream, app: &Arc<App>, router: Router, mut stopped: watch::Receiver<bool>) {
    let clock = Clock::new();
    let timed = Timed { inner: stream, clock: Arc::clone(&clock) };
    let timed = TokioIo::new(Worded::new(timed, app.limits.head));
    let service = service_fn(|request| {
        let (app, router, busy) = (Arc::clone(app), router.clone(), clock.busy());
        async move { Ok::<_, Infallible>(respond(app, router, request, busy).await) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(app.limits.head).half_close(false);
    let mut serving = std::pin::pin!(http.serve_connection(timed, service));
    let mut expired = std::pin::pin!(Arc::clone(&clock).expired(&app.limits));
    loop {
        tokio::select! {
            // What a client does wrong is its own loss.
            outcome = serving.as_mut() => return outcome.err().into_iter().for_each(|error| note(app, &error)),
            () = expired.as_mut() => return,
            Ok(()) = stopped.changed() => serving.as_mut().graceful_shutdown(),
        }
    }
}

/// Counts what was no request and has no record.
fn note(app: &App, error: &hyper::Error) {
    if error.is_parse() {
        let status = if error.is_parse_too_large() { 431 } else { 400 };
        app.figures.answered.get_or_create(&Answered { route: "none".into(), status }).inc();
        app.log.say("info", "malformed", json!({"status": status}));
    }
}

/// Answers one request.
async fn respond(app: Arc<App>, router: Router, request: Request<Incoming>, busy: Busy) -> Response<Body> {
    let record = Record::begin(Arc::clone(&app), request.method().as_str());
    let (mut parts, body) = request.into_parts();
    let shape = Shape::of(parts.uri.path());
    let admitted = admit(&app, &parts).map(|who| record.asks(who));
    parts.extensions.insert(Arc::clone(&record));
    let routed = AssertUnwindSafe(async move {
        admitted?;
        let request = Request::from_parts(parts, Body::new(body));
        Ok(tower::ServiceExt::oneshot(router, request).await.unwrap_or_else(|never: Infallible| match never {}))
    });
    let outcome = routed.catch_unwind().await;
    let outcome = outcome.unwrap_or_else(|_| Err(Failure::fault("a handler panicked")));
    let mut response = routes::finish(outcome, Some(&record), shape);
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&record.id) {
        headers.insert(HeaderName::from_static("request-id"), id.clone());
        headers.insert(HeaderName::from_static("x-request-id"), id);
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    record.status(response.status().as_u16());
    response.map(|inner| Body::new(Watched { inner, record, _busy: busy }))
}

/// Whether a request is looked at, before anything of its body is read, and [who](super::guard::Keys::check) asks.
fn admit(app: &App, parts: &axum::http::request::Parts) -> Result<usize, Failure> {
    check_names(parts, app.loopback)?;
    if parts.headers.contains_key(header::TRANSFER_ENCODING) && parts.headers.contains_key(header::CONTENT_LENGTH) {
        return Err(Failure::bad("the request gives its length in two ways"));
    }
    if parts.uri.path() == "/health" || page::is_shell(parts.uri.path()) {
        return Ok(0);
    }
    let who = app.keys.check(&parts.headers)?;
    if app.is_stopping() { Err(Failure::stopping()) } else { Ok(who) }
}

/// A body that keeps the request's record, and the connection busy, until its last byte.
struct Watched {
    inner: Body,
    record: Arc<Record>,
    _busy: Busy,
}

impl HttpBody for Watched {
    type Data = axum::body::Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        if matches!(polled, Poll::Ready(None)) || self.inner.is_end_stream() {
            self.record.complete();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        let end = self.inner.is_end_stream();
        if end {
            self.record.complete();
        }
        end
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Done when the system asks the program to stop, or the user does.
pub async fn stop_signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let (Ok(mut term), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
            tokio::select! {
                _ = term.recv() => {}
                _ = interrupt.recv() => {}
            }
            return;
        }
    }
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}
