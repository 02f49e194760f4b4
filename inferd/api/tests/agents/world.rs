//! A server whose model follows a script, with the bytes as vocabulary and the protocol's own control tokens.

use crate::support::model::{Controls, FakeModel};
use axum::body::Body;
use axum::response::Response;
use ds4_api::{Api, Serving, Settings};
use ds4_engine::{Account, Engine, EngineOptions};
use ds4_families::deepseek4::{DeepSeek4Codec, PromptProfile};
use ds4_model::{
    BankError, BankFormat, BankImage, LoadedModel, LogitsWanted, Model, ModelInfo, PromptCodec, StepBatch, StepError,
    StepLogits, Tokenizer, VocabularyParts,
};
use ds4_units::{BankId, Bytes, TokenId, Tokens};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tower::ServiceExt;

const CONTROLS: [&str; 14] = [
    "<｜begin▁of▁sentence｜>",
    "<｜end▁of▁sentence｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<think>",
    "</think>",
    "｜DSML｜",
    "<｜latest_reminder｜>",
    "<｜action｜>",
    "<｜query｜>",
    "<｜authority｜>",
    "<｜domain｜>",
    "<｜title｜>",
    "<｜read_url｜>",
];

const SIZE: usize = 256 + CONTROLS.len();

/// A vocabulary of the 256 bytes and the protocol's control tokens.
pub(crate) fn tokenizer() -> Tokenizer {
    let mut stand_in = 0xFFu32;
    let mut tokens: Vec<String> = (0..=255u8)
        .map(|byte| match byte {
            b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => char::from(byte).to_string(),
            _ => {
                stand_in += 1;
                char::from_u32(stand_in).unwrap().to_string()
            }
        })
        .collect();
    tokens.extend(CONTROLS.map(str::to_owned));
    let types: Vec<u64> = (0..SIZE).map(|id| if id < 256 { 1 } else { 3 }).collect();
    Tokenizer::from_parts(VocabularyParts { tokens: &tokens, types: &types, merges: &[], split: "joyai-llm" }).unwrap()
}

/// Prompts as text, in the order in which their answers began.
type Prompts = Arc<Mutex<Vec<String>>>;

/// A fake model with a larger vocabulary: its rule leaves the token to say here.
struct Scripted {
    inner: FakeModel,
    info: ModelInfo,
    said: Arc<Mutex<Vec<TokenId>>>,
}

impl Scripted {
    /// Says `answers[n]` after the opening of the conversation's answer number `n`, then ends.
    fn new(answers: &[&str], tokenizer: &Arc<Tokenizer>, context: u32, prompts: Prompts) -> (Scripted, Controls) {
        let tokens = |text: &&str| tokenizer.encode(&tokenizer.parse_trusted(text));
        let answers: Vec<Vec<TokenId>> = answers.iter().map(tokens).collect();
        let control = |spelling| tokenizer.control(spelling).unwrap();
        let (assistant, end) = (control("<｜Assistant｜>"), control("<｜end▁of▁sentence｜>"));
        let said = Arc::new(Mutex::new(Vec::new()));
        let vocabulary = tokenizer.clone();
        let telling = said.clone();
        let rule = Box::new(move |tokens: &[TokenId]| {
            // A prompt of /v1/completions is one letter in these tests.
            let opening = tokens.iter().rposition(|&token| token == assistant).map_or(2, |at| at + 2);
            let number = tokens.iter().filter(|&&token| token == assistant).count().saturating_sub(1);
            let answer = &answers[number.min(answers.len() - 1)];
            let begun = tokens.len().saturating_sub(opening);
            if begun == 0 {
                prompts.lock().unwrap().push(spelled(&vocabulary, tokens));
            }
            let next = answer.get(begun).copied().unwrap_or(end);
            telling.lock().unwrap().push(next);
            vec![0.0; crate::support::vocabulary::SIZE]
        });
        let (inner, controls) = FakeModel::new(rule, context);
        let info = ModelInfo { vocabulary: SIZE, ..inner.info().clone() };
        (Scripted { inner, info, said }, controls)
    }
}

impl Model for Scripted {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn open_bank(&mut self) -> BankId {
        self.inner.open_bank()
    }

    fn close_bank(&mut self, bank: BankId) {
        self.inner.close_bank(bank);
    }

    fn frontier(&self, bank: BankId) -> Option<Tokens> {
        self.inner.frontier(bank)
    }

    fn step(&mut self, batch: &StepBatch<'_>) -> Result<StepLogits, StepError> {
        self.said.lock().unwrap().clear();
        self.inner.step(batch)?;
        let said = self.said.lock().unwrap();
        let mut said = said.iter();
        let (mut rows, mut values, mut drawn) = (Vec::new(), Vec::new(), Vec::new());
        for segment in batch.segments {
            let wanted = match segment.logits {
                LogitsWanted::None | LogitsWanted::Greedy => 0,
                LogitsWanted::Last => 1,
                LogitsWanted::All => segment.tokens.len(),
            };
            let greedy = segment.logits == LogitsWanted::Greedy;
            drawn.push(if greedy { said.next().copied() } else { None });
            for token in said.by_ref().take(wanted) {
                values.extend((0..SIZE).map(|id| if id == token.index() { 10.0 } else { 0.0 }));
            }
            rows.push(wanted);
        }
        Ok(StepLogits::new(SIZE, &rows, values).with_drawn(drawn))
    }

    fn checkpoint(&mut self, bank: BankId) -> Result<(), BankError> {
        self.inner.checkpoint(bank)
    }

    fn restorable(&self, bank: BankId, to: Tokens) -> Result<Tokens, BankError> {
        self.inner.restorable(bank, to)
    }

    fn truncate(&mut self, bank: BankId, to: Tokens) -> Result<Tokens, BankError> {
        self.inner.truncate(bank, to)
    }

    fn fork(&mut self, source: BankId, to: Tokens) -> Result<(BankId, Tokens), BankError> {
        self.inner.fork(source, to)
    }

    fn bank_format(&self) -> BankFormat {
        self.inner.bank_format()
    }

    fn export(&self, bank: BankId, first_block: usize) -> Result<BankImage, BankError> {
        self.inner.export(bank, first_block)
    }

    fn import(&mut self, tokens: &[TokenId], image: &BankImage) -> Result<BankId, BankError> {
        self.inner.import(tokens, image)
    }

    fn resident_bytes(&self, bank: BankId) -> Result<Bytes, BankError> {
        self.inner.resident_bytes(bank)
    }

    fn price(&self, tokens: Tokens) -> Bytes {
        self.inner.price(tokens)
    }
}

fn spelled(tokenizer: &Tokenizer, tokens: &[TokenId]) -> String {
    let bytes: Vec<u8> = tokens.iter().flat_map(|&token| tokenizer.token_bytes(token).unwrap()).copied().collect();
    String::from_utf8(bytes).unwrap()
}

/// A server with a scripted model.
pub(crate) struct World {
    pub(crate) api: Api,
    pub(crate) controls: Controls,
    prompts: Prompts,
    serving: Serving,
    _engine: Engine,
}

/// A whole reply.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

/// One server-sent event: its name (empty without one) and its data.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sent {
    pub(crate) name: String,
    pub(crate) data: Value,
}

impl Reply {
    /// The body of a reply that is well.
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, StatusCode::OK, "{}", self.text);
        self.json()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// The events of a stream; comments are left out, `[DONE]` is a string.
    pub(crate) fn events(&self) -> Vec<Sent> {
        assert_eq!(self.headers["content-type"], "text/event-stream", "{}", self.text);
        let frames = self.text.split("\n\n").filter(|frame| !frame.is_empty() && !frame.starts_with(':'));
        frames
            .map(|frame| {
                let line = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
                let data = line("data: ");
                Sent {
                    name: line("event: ").to_owned(),
                    data: serde_json::from_str(data).unwrap_or_else(|_| data.into()),
                }
            })
            .collect()
    }
}

impl World {
    /// Answers number n of a conversation is `answers[n]`; the last one for all that follow.
    pub(crate) fn saying(answers: &[&str]) -> World {
        World::with(answers, Settings::default())
    }

    pub(crate) fn with(answers: &[&str], settings: Settings) -> World {
        World::of(answers, settings, 200_000, 4)
    }

    pub(crate) fn of(answers: &[&str], settings: Settings, context: u32, banks: usize) -> World {
        let tokenizer = Arc::new(tokenizer());
        let codec: Arc<dyn PromptCodec> =
            Arc::new(DeepSeek4Codec::new(tokenizer.clone(), PromptProfile::Release).unwrap());
        let prompts = Prompts::default();
        let (model, controls) = Scripted::new(answers, &tokenizer, context, prompts.clone());
        let loaded = LoadedModel { model: Box::new(model), tokenizer: tokenizer.clone(), codec: codec.clone() };
        let options = EngineOptions { banks, prefill_rows: Some(1 << 20), ..EngineOptions::default() };
        let engine = Engine::start(loaded, options, Account::unlimited()).unwrap();
        let api = Api::new(settings, None);
        let serving = Serving { model_id: "test-model".into(), engine: engine.handle(), tokenizer, codec };
        api.ready(serving.clone());
        World { api, controls, prompts, serving, _engine: engine }
    }

    pub(crate) fn serving(&self) -> Serving {
        self.serving.clone()
    }

    pub(crate) async fn send(&self, path: &str, body: impl Into<Body>) -> Response {
        let request = Request::post(path).header("content-type", "application/json").body(body.into()).unwrap();
        self.api.router().oneshot(request).await.unwrap()
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        let (head, body) = self.send(path, body.to_string()).await.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Reply { status: head.status, headers: head.headers, text: String::from_utf8(bytes.to_vec()).unwrap() }
    }

    /// A request without a body.
    pub(crate) async fn call(&self, method: &str, path: &str) -> Reply {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let (head, body) = self.api.router().oneshot(request).await.unwrap().into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Reply { status: head.status, headers: head.headers, text: String::from_utf8(bytes.to_vec()).unwrap() }
    }

    /// The prompt that was computed last.
    pub(crate) fn last_prompt(&self) -> String {
        self.prompts.lock().unwrap().last().expect("an answer began").clone()
    }

    /// The prompt of a chat request, control tokens spelled out.
    pub(crate) async fn prompt(&self, body: &Value) -> String {
        let reply = self.post("/apply-template", body).await.ok();
        reply["prompt"].as_str().unwrap().to_owned()
    }
}

pub(crate) const CHAT: &str = "/v1/chat/completions";
pub(crate) const COMPLETIONS: &str = "/v1/completions";
pub(crate) const RESPONSES: &str = "/v1/responses";
pub(crate) const MESSAGES: &str = "/v1/messages";

/// A call as the model writes it: a name, and parameters with whether they are strings.
pub(crate) type Written<'a> = (&'a str, &'a [(&'a str, bool, &'a str)]);

/// A block of calls as the model writes it.
pub(crate) fn block(calls: &[Written<'_>]) -> String {
    let mut text = String::from("\n\n<｜DSML｜tool_calls>\n");
    for (name, parameters) in calls {
        text.push_str(&format!("<｜DSML｜invoke name=\"{name}\">\n"));
        for (name, is_string, value) in *parameters {
            text.push_str(&format!(
                "<｜DSML｜parameter name=\"{name}\" string=\"{is_string}\">{value}</｜DSML｜parameter>\n"
            ));
        }
        text.push_str("</｜DSML｜invoke>\n");
    }
    text.push_str("</｜DSML｜tool_calls>");
    text
}

/// The tool `bash`, as a chat request offers it.
pub(crate) fn chat_tool() -> Value {
    json!({"type": "function", "function": {"name": "bash", "description": "Runs a command", "parameters": schema()}})
}

/// As a responses request offers it.
pub(crate) fn responses_tool() -> Value {
    json!({"type": "function", "name": "bash", "description": "Runs a command", "strict": false,
        "parameters": schema()})
}

/// As a messages request offers it.
pub(crate) fn messages_tool() -> Value {
    json!({"name": "bash", "description": "Runs a command", "input_schema": schema(),
        "cache_control": {"type": "ephemeral"}})
}

fn schema() -> Value {
    json!({"type": "object", "properties": {"command": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["command"]})
}
