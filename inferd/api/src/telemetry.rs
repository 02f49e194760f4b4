//! What the HTTP side counts: how long requests took, how replies ended, what was asked for, what was turned away.
//!
//! Every label has a closed set of values, and every series is there from the start.

use ds4_engine::{Finished, Hear, ReuseKind};
use ds4_model::{Conversation, Effort, ThinkingMode, ToolOutcome};
use prometheus::proto::MetricFamily;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry, exponential_buckets};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Why a request was turned away before it had a bank: all label values there are. Bodies that find no room and prompts
/// that find none are both `queue_bytes`.
pub(crate) const SHED_REASONS: [&str; 5] = ["clients", "queue_depth", "queue_bytes", "queue_age", "slow_reader"];

/// How much reasoning answers were asked for: not any, as much as the model likes, or a level by name.
pub(crate) const THINK_MODES: [&str; 5] = ["none", "usual", "low", "high", "max"];

/// The surfaces that generate.
pub(crate) const SURFACES: [&str; 4] = ["openai_chat", "openai_completion", "openai_responses", "anthropic_messages"];

/// The one way there is through the engine.
pub(crate) const LANE: &str = "continuous";

/// What is not a surface.
const OTHER: &str = "other";

/// All statuses that this server answers with.
const STATUSES: [u16; 14] = [200, 204, 400, 401, 403, 404, 405, 409, 413, 415, 429, 500, 501, 503];

/// Counters and histograms that live as long as the server. Cheap to write to from any handler.
pub(crate) struct Telemetry {
    pub(crate) started: Instant,
    registry: Registry,
    first_token: HistogramVec,
    whole: HistogramVec,
    between_tokens: HistogramVec,
    responses: IntCounterVec,
    tool_calls: IntCounterVec,
    sheds: IntCounterVec,
    routes: IntCounterVec,
    thinking: IntCounterVec,
    last: Mutex<Option<LastRequest>>,
}

/// How the request that ended last was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastRequest {
    /// Where its bank came from.
    pub(crate) reuse: ReuseKind,
    /// Some of its tokens were guessed.
    pub(crate) speculated: bool,
}

impl Telemetry {
    pub(crate) fn new() -> Telemetry {
        let registry = Registry::new();
        // From 1 ms to 35 minutes, each bucket twice the one before.
        let seconds = exponential_buckets(0.001, 2.0, 22).unwrap_or_default();
        let histogram = |name: &str, help: &str| {
            HistogramVec::new(HistogramOpts::new(name, help).buckets(seconds.clone()), &["surface"])
        };
        let counter = |name: &str, help: &str, labels: &[&str]| IntCounterVec::new(Opts::new(name, help), labels);
        let telemetry = Telemetry {
            started: Instant::now(),
            first_token: valid(histogram(
                "ds4_ttft_seconds",
                "From a request's arrival at the engine to its first token",
            )),
            whole: valid(histogram("ds4_e2e_seconds", "From a request's first byte to the end of its answer")),
            between_tokens: valid(histogram(
                "ds4_inter_token_seconds",
                "Time between an answer's tokens, one observation for each after the first",
            )),
            responses: valid(counter("ds4_http_responses_total", "Replies by status", &["surface", "code"])),
            tool_calls: valid(counter(
                "ds4_tool_calls_total",
                "Answers with tool calls by how they were read",
                &["result"],
            )),
            sheds: valid(counter(
                "ds4_requests_shed_total",
                "Requests turned away at the door or from the queue, and answers that were read too slowly",
                &["reason"],
            )),
            routes: valid(counter("ds4_route_requests_total", "Requests handed to the engine", &["surface", "lane"])),
            thinking: valid(counter("ds4_requests_think_total", "Of these, by the reasoning asked for", &["mode"])),
            last: Mutex::default(),
            registry,
        };
        telemetry.begin_all();
        telemetry.register();
        telemetry
    }

    /// Every series begins at zero.
    fn begin_all(&self) {
        for surface in SURFACES {
            for histogram in [&self.first_token, &self.whole, &self.between_tokens] {
                histogram.with_label_values(&[surface]);
            }
            self.routes.with_label_values(&[surface, LANE]);
        }
        for surface in SURFACES.into_iter().chain([OTHER]) {
            for code in STATUSES {
                self.responses.with_label_values(&[surface, &code.to_string()]);
            }
        }
        for outcome in ToolOutcome::ALL {
            self.tool_calls.with_label_values(&[outcome.name()]);
        }
        for reason in SHED_REASONS {
            self.sheds.with_label_values(&[reason]);
        }
        for mode in THINK_MODES {
            self.thinking.with_label_values(&[mode]);
        }
    }

    fn register(&self) {
        for histogram in [&self.first_token, &self.whole, &self.between_tokens] {
            valid(self.registry.register(Box::new(histogram.clone())));
        }
        for counter in [&self.responses, &self.tool_calls, &self.sheds, &self.routes, &self.thinking] {
            valid(self.registry.register(Box::new(counter.clone())));
        }
    }

    /// The engine has taken a request of `surface`.
    pub(crate) fn routed(&self, surface: &str, think_mode: &str) {
        self.routes.with_label_values(&[surface, LANE]).inc();
        self.thinking.with_label_values(&[think_mode]).inc();
    }

    /// How many requests of `surface` the engine has taken.
    pub(crate) fn routes(&self, surface: &str) -> u64 {
        self.routes.with_label_values(&[surface, LANE]).get()
    }

    /// How many of all asked for reasoning in this way.
    pub(crate) fn thinking(&self, mode: &str) -> u64 {
        self.thinking.with_label_values(&[mode]).get()
    }

    /// An answer is complete.
    pub(crate) fn answered(&self, surface: &str, finished: &Finished, whole: Duration) {
        let observe = |histogram: &HistogramVec, time: Duration| {
            histogram.with_label_values(&[surface]).observe(time.as_secs_f64());
        };
        let timings = &finished.timings;
        observe(&self.whole, whole);
        if let Some(first) = timings.first_token {
            observe(&self.first_token, first);
        }
        if let Some(outcome) = finished.answer.outcome {
            self.tool_calls.with_label_values(&[outcome.name()]).inc();
        }
        let last = LastRequest { reuse: timings.reuse, speculated: timings.guesses > 0 };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
    }

    /// How the request that was answered last was served; nothing before the first.
    pub(crate) fn last_request(&self) -> Option<LastRequest> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the times between tokens of an answer of this surface: a few additions to numbers that no lock guards.
    pub(crate) fn gaps(&self, surface: &str) -> Hear {
        let histogram = self.between_tokens.with_label_values(&[surface]);
        Box::new(move |gap| histogram.observe(gap.as_secs_f64()))
    }

    /// A reply begins with this status.
    pub(crate) fn replied(&self, surface: &str, code: u16) {
        self.responses.with_label_values(&[surface, &code.to_string()]).inc();
    }

    /// A request is turned away; `reason` is one of [`SHED_REASONS`].
    pub(crate) fn shed(&self, reason: &str) {
        self.sheds.with_label_values(&[reason]).inc();
    }

    /// How often requests were turned away for `reason`.
    pub(crate) fn sheds(&self, reason: &str) -> u64 {
        self.sheds.with_label_values(&[reason]).get()
    }

    pub(crate) fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }
}

/// Metrics are declared by constants: one that is malformed or there twice fails every test of the server.
pub(crate) fn valid<T>(metric: prometheus::Result<T>) -> T {
    metric.unwrap_or_else(|error| panic!("a metric is declared wrongly: {error}"))
}

/// The label for a path.
pub(crate) fn surface_of(path: &str) -> &'static str {
    match path {
        "/v1/chat/completions" => "openai_chat",
        "/v1/completions" => "openai_completion",
        "/v1/responses" => "openai_responses",
        "/v1/messages" => "anthropic_messages",
        _ => OTHER,
    }
}

/// The label for the reasoning that an answer of a conversation is asked for, one of [`THINK_MODES`].
pub(crate) fn think_mode_of(conversation: &Conversation) -> &'static str {
    match (conversation.thinking, conversation.effort) {
        (ThinkingMode::Off, _) => "none",
        (ThinkingMode::On, None) => "usual",
        (ThinkingMode::On, Some(Effort::Low)) => "low",
        (ThinkingMode::On, Some(Effort::High)) => "high",
        (ThinkingMode::On, Some(Effort::Max)) => "max",
    }
}
