//! What the HTTP side counts: how long requests took, how replies ended, what was turned away.

use ds4_engine::Finished;
use prometheus::proto::MetricFamily;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry, exponential_buckets};
use std::time::{Duration, Instant};

/// Why a request was turned away before it had a bank: all label values there are.
pub(crate) const SHED_REASONS: [&str; 5] = ["clients", "queue_depth", "queue_bytes", "queue_age", "slow_reader"];

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
                "Mean gap between the tokens of an answer, one observation an answer",
            )),
            responses: valid(counter("ds4_http_responses_total", "Replies by status", &["surface", "code"])),
            tool_calls: valid(counter(
                "ds4_tool_calls_total",
                "Answers with tool calls by how they were read",
                &["result"],
            )),
            sheds: valid(counter(
                "ds4_requests_shed_total",
                "Requests turned away before they had a bank",
                &["reason"],
            )),
            registry,
        };
        for reason in SHED_REASONS {
            telemetry.sheds.with_label_values(&[reason]);
        }
        telemetry.register();
        telemetry
    }

    fn register(&self) {
        for histogram in [&self.first_token, &self.whole, &self.between_tokens] {
            valid(self.registry.register(Box::new(histogram.clone())));
        }
        for counter in [&self.responses, &self.tool_calls, &self.sheds] {
            valid(self.registry.register(Box::new(counter.clone())));
        }
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
        if let Some(gaps) = finished.usage.completion_tokens.0.checked_sub(1).filter(|&gaps| gaps > 0) {
            observe(&self.between_tokens, timings.decode / gaps);
        }
        if let Some(outcome) = finished.answer.outcome {
            self.tool_calls.with_label_values(&[outcome.name()]).inc();
        }
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

/// The label for a path; the empty one for what does not generate.
pub(crate) fn surface_of(path: &str) -> &'static str {
    match path {
        "/v1/chat/completions" => "openai_chat",
        "/v1/completions" => "openai_completion",
        "/v1/responses" => "openai_responses",
        "/v1/messages" => "anthropic_messages",
        _ => "other",
    }
}
