//! Masks that are late: the others go on step by step, and no answer shows it.

use super::*;
use crate::constrain::walker::Walker;
use crate::constrain::{Constraint, Grammars, Matcher};
use crate::source::{Feed, RowSink};
use llguidance::toktrie::SimpleVob;
use std::cell::RefCell;
use std::sync::{Condvar, Mutex};

const VOCAB: usize = 9;

/// Rows that depend on all tokens before them; notes how many sequences each step fed.
#[derive(Default)]
struct Mixed(RefCell<Vec<usize>>);

impl LogitsSource for Mixed {
    type State = Vec<u32>;

    fn vocab(&self) -> usize {
        VOCAB
    }

    fn input_vocab(&self) -> usize {
        VOCAB
    }

    fn start(&self, _: usize, _: Option<&[u32]>) -> Result<Vec<u32>, Error> {
        Ok(Vec::new())
    }

    fn fork(&self, state: &Vec<u32>) -> Vec<u32> {
        state.clone()
    }

    fn truncate(&self, state: &mut Vec<u32>, len: usize) {
        state.truncate(len);
    }

    fn feed(&self, feeds: &mut [Feed<'_, Vec<u32>>], sink: &mut RowSink<'_>) -> Result<(), Error> {
        self.0.borrow_mut().push(feeds.len());
        for (index, feed) in feeds.iter_mut().enumerate() {
            for (at, &token) in feed.tokens.iter().enumerate() {
                feed.state.push(token);
                let mix = |mix: u64, &id: &u32| (mix ^ u64::from(id)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let mix = feed.state.iter().fold(5, mix);
                let row: Vec<f32> = (0..VOCAB as u32).map(|id| (mix.rotate_left(id * 7) >> 44) as f32).collect();
                if at >= feed.rows_from {
                    sink(index, at, &row)?;
                }
            }
        }
        Ok(())
    }
}

/// How many masks may still be made, of all matchers that look at it.
#[derive(Default)]
struct Gate(Mutex<usize>, Condvar);

impl Gate {
    fn open(&self, times: usize) {
        *self.0.lock().expect("the gate") = times;
        self.1.notify_all();
    }

    fn pass(&self) {
        let mut left = self.0.lock().expect("the gate");
        while *left == 0 {
            left = self.1.wait(left).expect("the gate");
        }
        *left -= 1;
    }
}

/// Forbids the token that was chosen last, as soon as the gate lets it.
#[derive(Clone)]
struct Slow {
    gate: Arc<Gate>,
    last: Option<u32>,
    /// Tokens after which it panics.
    patience: usize,
    /// Bytes that each token takes.
    greed: u64,
    followed: u64,
}

impl Walker for Slow {
    fn look(&mut self) -> Result<SimpleVob, String> {
        // The first one is made with the grammar, before it comes here.
        if self.followed > 0 {
            self.gate.pass();
        }
        assert!(self.patience > 0, "out of patience");
        let mut all = SimpleVob::alloc(VOCAB + 1);
        (0..VOCAB as u32).filter(|id| Some(*id) != self.last).for_each(|id| all.allow_token(id));
        Ok(all)
    }

    fn follow(&mut self, id: u32) -> Result<(), String> {
        (self.last, self.patience, self.followed) = (Some(id), self.patience - 1, self.followed + 1);
        Ok(())
    }

    fn is_complete(&self) -> bool {
        false
    }

    fn fork(&self) -> Box<dyn Walker> {
        Box::new(self.clone())
    }

    fn bytes(&self) -> u64 {
        self.followed * self.greed
    }
}

fn around() -> Surroundings {
    Surroundings { context: None, chunk: 64, end_ids: Vec::new(), ..Surroundings::default() }
}

fn ready(around: &Surroundings, tokens: usize, n: usize) -> Ready {
    behind(around, Prompt::tokens([1, 2, 1]), tokens, n)
}

fn behind(around: &Surroundings, prompt: Prompt, tokens: usize, n: usize) -> Ready {
    let mut options = GenerateOptions::default();
    (options.length.max_tokens, options.length.n) = (Some(tokens), n);
    (options.sampling.temperature, options.sampling.seed) = (1e5, Some(4));
    options.speculation.prompt_lookup_num_tokens = 4;
    Ready::new(&Mixed::default(), None, around, prompt, Arc::new(options)).expect("in order")
}

fn slow(around: &Surroundings, tokens: usize, n: usize, gate: &Arc<Gate>, patience: usize) -> Ready {
    greedy(around, tokens, n, Slow { gate: gate.clone(), last: None, patience, greed: 0, followed: 0 })
}

fn greedy(around: &Surroundings, tokens: usize, n: usize, walker: Slow) -> Ready {
    let mut ready = ready(around, tokens, n);
    Arc::make_mut(&mut ready.options).constraints.constraint = Some(Constraint::JsonObject);
    let matcher = |_| Matcher::slow(Box::new(walker.clone()), VOCAB as u32, &around.grammars);
    ready.matchers = (0..n).map(matcher).collect();
    ready
}

/// A step, and how many tokens of each request it gave.
fn step<S: LogitsSource>(schedule: &mut Schedule<'_, S>) -> ([usize; 3], Vec<Ended>) {
    let mut tokens = [0; 3];
    let ended = schedule.step(&mut |key, event| {
        tokens[key] += usize::from(matches!(event, Event::Token { .. }));
        ControlFlow::Continue(())
    });
    (tokens, ended)
}

fn said(output: Output) -> Output {
    Output { timings: Default::default(), guesses: Default::default(), ..output }
}

/// What a request says where nothing ever waits.
fn alone(around: &Surroundings, ready: Ready) -> Output {
    let source = Mixed::default();
    let mut schedule = Schedule::new(&source, None, around, Limits::default());
    schedule.add_ready(0, ready);
    loop {
        if let Some((_, output)) = step(&mut schedule).1.pop() {
            return said(output.expect("an answer"));
        }
    }
}

fn open_gate() -> Arc<Gate> {
    let gate = Arc::new(Gate::default());
    gate.open(usize::MAX);
    gate
}

#[test]
fn a_late_mask_holds_back_nobody_else() {
    let (around, source, gate) = (around(), Mixed::default(), Arc::new(Gate::default()));
    let expected = alone(&around, slow(&around, 12, 2, &open_gate(), 99));
    let plain = alone(&around, ready(&around, 30, 1));
    let mut schedule = Schedule::new(&source, None, &around, Limits::default());
    schedule.add_ready(0, slow(&around, 12, 2, &gate, 99));
    assert_eq!(step(&mut schedule).0, [2, 0, 0]);
    schedule.add_ready(1, ready(&around, 30, 1));
    schedule.add_ready(2, ready(&around, 30, 1));
    let (mut steps, mut given, mut ended) = (0, [0; 3], Vec::new());
    while ended.len() < 2 {
        let (tokens, mut over) = step(&mut schedule);
        assert!(tokens[1] > 0 && tokens[2] > 0, "step {steps} waited: {tokens:?}");
        (0..3).for_each(|key| given[key] += tokens[key]);
        ended.append(&mut over);
        steps += 1;
    }
    assert!(steps <= 30, "a step gives a token to each: {steps}");
    assert_eq!(given, [0, 30, 30]);
    ended.into_iter().for_each(|(_, output)| assert_eq!(said(output.expect("an answer")), plain));
    // Its two tokens were fed while they waited, once, and nothing since.
    assert_eq!(source.0.borrow()[1..3], [4, 2]);
    gate.open(usize::MAX);
    let mut last = Vec::new();
    while !schedule.is_idle() {
        last.append(&mut step(&mut schedule).1);
    }
    let [(0, Ok(output))] = &last[..] else { panic!("{last:?}") };
    assert_eq!(said(output.clone()), expected);
}

/// The one that waits is put back for want of room, and begins anew behind the others.
#[test]
fn whoever_waits_can_be_put_back() {
    let (around, source, gate) = (around(), Mixed::default(), Arc::new(Gate::default()));
    let expected = alone(&around, slow(&around, 100, 1, &open_gate(), 999));
    let limits = Limits { sequences: 9, tokens: 3 * BLOCK_TOKENS };
    let mut schedule = Schedule::new(&source, None, &around, limits);
    schedule.add_ready(1, ready(&around, 180, 1));
    step(&mut schedule);
    schedule.add_ready(0, slow(&around, 100, 1, &gate, 999));
    let mut ended = Vec::new();
    while ended.is_empty() {
        ended.append(&mut step(&mut schedule).1);
    }
    gate.open(usize::MAX);
    while !schedule.is_idle() {
        ended.append(&mut step(&mut schedule).1);
    }
    assert!(schedule.load().preempted > 0);
    let [(1, Ok(_)), (0, Ok(output))] = &ended[..] else { panic!("{ended:?}") };
    assert_eq!(said(output.clone()), expected);
}

#[test]
fn a_matcher_that_panics_fails_its_request_alone() {
    let (around, source) = (around(), Mixed::default());
    for patience in [0, 3] {
        let plain = alone(&around, ready(&around, 20, 1));
        let mut schedule = Schedule::new(&source, None, &around, Limits::default());
        schedule.add_ready(0, slow(&around, 9, 1, &open_gate(), patience));
        schedule.add_ready(1, ready(&around, 20, 1));
        let mut ended = Vec::new();
        while !schedule.is_idle() {
            ended.append(&mut step(&mut schedule).1);
        }
        ended.sort_by_key(|(key, _)| *key);
        let [(0, Err(Error::ConstraintFault { position, reason })), (1, Ok(output))] = &ended[..] else {
            panic!("{ended:?}")
        };
        assert_eq!((*position, said(output.clone())), (3 + patience, plain));
        assert!(reason.contains("out of patience"), "{reason}");
    }
}

/// Whoever leaves while its matcher is away is forgotten, and a schedule that is dropped waits for nobody.
#[test]
fn whoever_waits_can_leave() {
    let (around, source, gate) = (around(), Mixed::default(), Arc::new(Gate::default()));
    let mut schedule = Schedule::new(&source, None, &around, Limits::default());
    for key in [0, 1] {
        schedule.add_ready(key, slow(&around, 9, 1, &gate, 99));
        step(&mut schedule);
    }
    assert!(schedule.cancel(0));
    assert_eq!(schedule.counts(), (1, 0));
    drop(schedule);
    gate.open(usize::MAX);
}

/// Where matchers outgrow their memory the first of them goes on alone, then the next; the others do not notice.
#[test]
fn matchers_stay_within_their_memory_together() {
    let (source, limit) = (Mixed::default(), 100_000);
    let around = Surroundings { grammars: Grammars::within(limit), ..around() };
    let walker = |greed| Slow { gate: open_gate(), last: None, patience: 99, greed, followed: 0 };
    let expected: Vec<Output> = [30, 20].map(|tokens| alone(&around, greedy(&around, tokens, 1, walker(0)))).into();
    let plain = alone(&around, ready(&around, 40, 1));
    let mut schedule = Schedule::new(&source, None, &around, Limits::default());
    schedule.add_ready(0, greedy(&around, 30, 1, walker(3000)));
    schedule.add_ready(1, greedy(&around, 20, 1, walker(3000)));
    schedule.add_ready(2, ready(&around, 40, 1));
    let (mut ended, mut alone_steps) = (Vec::new(), 0);
    while !schedule.is_idle() {
        let full = around.grammars.is_over();
        let (tokens, mut over) = step(&mut schedule);
        assert!(!full || tokens[1] == 0 || tokens[0] == 0, "only one of them goes on where there is no room");
        assert!(tokens[2] > 0 || schedule.counts().0 < 3, "whoever is held to nothing goes on");
        alone_steps += usize::from(tokens[0] > 0 && tokens[1] == 0);
        // The first one goes on until it ends, however much it has; when masks come decides how much the other has by then.
        assert!(around.grammars.held() <= limit + 30 * 3000, "{} bytes", around.grammars.held());
        ended.append(&mut over);
    }
    assert!(alone_steps > 5, "the second waited {alone_steps} steps");
    ended.sort_by_key(|(key, _)| *key);
    let said: Vec<Output> = ended.into_iter().map(|(_, output)| said(output.expect("an answer"))).collect();
    assert_eq!(said, [expected[0].clone(), expected[1].clone(), plain]);
    assert_eq!(around.grammars.held(), 0);
}

/// Who is more urgent joins first and stays; neither shows in an answer.
#[test]
fn the_urgent_are_worked_on_first() {
    let (around, source) = (around(), Mixed::default());
    let plain = alone(&around, ready(&around, 10, 1));
    let ranked = |priority, client| ready(&around, 10, 1).ranked(priority, client);
    let mut schedule = Schedule::new(&source, None, &around, Limits { sequences: 1, tokens: 1 << 20 });
    for (key, (priority, client)) in [(5, "a"), (0, "a"), (0, "a"), (0, "b"), (-1, "a")].into_iter().enumerate() {
        schedule.add_ready(key, ranked(priority, client));
    }
    let mut order = Vec::new();
    while !schedule.is_idle() {
        for (key, output) in schedule.step(&mut |_, _| ControlFlow::Continue(())) {
            assert_eq!(said(output.expect("an answer")), plain);
            order.push(key);
        }
    }
    assert_eq!(order, [4, 3, 1, 2, 0], "a client that was served waits for the other");

    let mut schedule = Schedule::new(&source, None, &around, Limits { sequences: 9, tokens: 4 * BLOCK_TOKENS });
    let expected = alone(&around, ready(&around, 150, 1));
    schedule.add_ready(0, ready(&around, 150, 1).ranked(3, ""));
    step(&mut schedule);
    schedule.add_ready(1, ready(&around, 150, 1));
    let mut ended = Vec::new();
    while !schedule.is_idle() {
        ended.append(&mut step(&mut schedule).1);
    }
    assert!(schedule.load().preempted > 0);
    let order: Vec<usize> = ended.iter().map(|(key, _)| *key).collect();
    assert_eq!(order, [1, 0], "the one that began first is put back for the one that is more urgent");
    ended.into_iter().for_each(|(_, output)| assert_eq!(said(output.expect("an answer")), expected));
}

/// What is read beside a sequence that goes on is read piece by piece, with the same answer.
#[test]
fn a_prompt_is_read_at_the_pace_of_those_that_go_on() {
    let (around, source) = (around(), Mixed::default());
    let long = || behind(&around, Prompt::tokens((0..60).map(|id| id % VOCAB as u32).collect::<Vec<u32>>()), 3, 1);
    let expected = [alone(&around, ready(&around, 30, 1)), alone(&around, long())];
    for even in [false, true] {
        let mut schedule = Schedule::new(&source, None, &around, Limits::default());
        if even {
            schedule = schedule.with_even_steps();
            // A token that is read takes a second, and a step of one sequence forty.
            let company = Company { going_on: 0, reading: 1, plain: None };
            schedule.pace.as_mut().expect("even").learn(100, company, Duration::from_secs(100));
            let took = Duration::from_secs(40);
            schedule.prices.learn(Step { sequences: 1, guesses: 0, took, drafting: None });
        }
        schedule.add_ready(0, ready(&around, 30, 1));
        step(&mut schedule);
        schedule.add_ready(1, long());
        let (mut waited, mut ended) = (0, Vec::new());
        loop {
            let (tokens, mut over) = step(&mut schedule);
            ended.append(&mut over);
            if tokens[1] > 0 {
                break;
            }
            assert!(tokens[0] > 0, "whoever goes on gets a token in every step");
            waited += 1;
        }
        assert_eq!(waited > 0, even, "steps before the first token: {waited}");
        while !schedule.is_idle() {
            ended.append(&mut step(&mut schedule).1);
        }
        ended.sort_by_key(|(key, _)| *key);
        let found = ended.into_iter().map(|(_, output)| said(output.expect("an answer")));
        assert!(found.eq(expected.iter().cloned()));
    }
}
