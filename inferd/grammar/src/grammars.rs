//! From a schema to its first mask.

use crate::calls::{self, Callable};
use crate::keywords;
use crate::lark::Lark;
use crate::mask::{GrammarMask, MaskPool};
use crate::vocabulary::Vocabulary;
use crate::{MaskError, SchemaError, size};
use ds4_model::{CallSyntax, ConstraintScope, Tokenizer};
use ds4_units::TokenId;
use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::toktrie::{InferenceCapabilities, TokEnv};
use llguidance::{JsonCompileOptions, Matcher, ParserFactory};
use serde_json::{Value, json};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

/// White space between two parts of an answer is at most this long: room for any indentation, and an end to a model
/// that would print nothing else.
const WHITE_SPACE: &str = r"[\x20\x0A\x0D\x09]{1,64}";

/// Texts inside JSON strings that most tokens fall under. Their part of a mask is computed once per vocabulary.
const SLICES: [&str; 4] =
    [r"[\x20\x0A\x0D\x09]+", r#"[^"\\\x00-\x1F\x7F]{1,10}"#, r#"[^"\\\x00-\x1F\x7F]{1,30}"#, r#"[^"\\\x00-\x1F\x7F]+"#];

/// A schema that says how JSON is written. The engine reads its options from the schema's root: ours replace what a
/// client may have put there.
pub(crate) fn with_options(schema: &Value) -> Value {
    let mut schema = if schema.is_object() { schema.clone() } else { json!({}) };
    let options = JsonCompileOptions {
        whitespace_pattern: Some(WHITE_SPACE.into()),
        json_allow_general_unicode_escapes: true,
        ..JsonCompileOptions::default()
    };
    options.apply_to(&mut schema);
    schema
}

/// What following a schema may cost. `max_lexer_states` bounds memory (about 2 KB a state), the fuels bound the time in
/// the lexer and the parser (at most some 15 ms a mask, 20 ms for the first). None of them bounds how long a schema
/// compiles before that: a few ms for what clients write, but seconds for one within [`size`] that is made to be slow.
fn limits() -> ParserLimits {
    ParserLimits {
        initial_lexer_fuel: 1_000_000,
        step_lexer_fuel: 200_000,
        step_max_items: 50_000,
        max_lexer_states: 20_000,
        max_grammar_size: 200_000,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

/// A model's vocabulary, ready to compile schemas against. Building one takes a good part of a second of CPU time for
/// a vocabulary of 129,280 tokens; it is shared by all requests.
pub struct Grammars {
    factory: ParserFactory,
    tokenizer: Arc<Tokenizer>,
    pool: Arc<MaskPool>,
}

impl Grammars {
    /// Prepares a vocabulary. `rows` is the length of a logits row; `stop_tokens` are what may follow a complete
    /// answer. Blocks while it computes.
    ///
    /// # Errors
    /// When the operating system gives no threads, or the vocabulary cannot be used; in words for a log.
    pub fn new(tokenizer: Arc<Tokenizer>, stop_tokens: &[TokenId], rows: usize) -> Result<Grammars, String> {
        let vocabulary: TokEnv = Arc::new(Vocabulary::new(tokenizer.clone(), stop_tokens, rows));
        let slices = SLICES.map(str::to_owned);
        let mut factory = ParserFactory::new(&vocabulary, InferenceCapabilities::default(), &slices)
            .map_err(|error| error.to_string())?;
        factory.quiet();
        *factory.limits_mut() = limits();
        let pool = MaskPool::new().map_err(|error| error.to_string())?;
        Ok(Grammars { factory, tokenizer, pool: Arc::new(pool) })
    }

    /// Answers that follow `schema`. With `calls`, the answer may be a block of tool calls instead, which this allows up
    /// to the end of its opening. Blocks while it compiles.
    ///
    /// # Errors
    /// When the schema holds what cannot be enforced, named by its path; when nothing can satisfy it; when it is too
    /// large.
    pub fn json_schema(&self, schema: &Value, calls: Option<&CallSyntax>) -> Result<GrammarMask, SchemaError> {
        keywords::check(schema)?;
        if *schema == false {
            return Err(SchemaError::Unusable { reason: "the schema is false".into() });
        }
        let Some(syntax) = calls else {
            return self.start(TopLevelGrammar::from_json_schema(with_options(schema)), ConstraintScope::Content);
        };
        let mut lark = Lark::new(&self.tokenizer);
        let opening = lark.literal(syntax.opening.trim_end());
        // Whether the last token of the opening takes the line end with it is the model's choice.
        lark.rule("start", &format!("answer | /\\n*/ {opening} /\\n*/"));
        lark.rule("answer", &Lark::json(schema));
        self.start(TopLevelGrammar::from_lark(lark.finish()), ConstraintScope::Content)
    }

    /// What may follow the opening of a block of calls.
    ///
    /// # Errors
    /// As [`Grammars::json_schema`], for the arguments of the strict tools.
    pub fn calls(&self, callable: Callable<'_>, syntax: &CallSyntax) -> Result<GrammarMask, SchemaError> {
        let grammar = calls::lark(callable, syntax, &self.tokenizer)?;
        self.start(TopLevelGrammar::from_lark(grammar), ConstraintScope::Calls)
    }

    fn start(&self, grammar: TopLevelGrammar, scope: ConstraintScope) -> Result<GrammarMask, SchemaError> {
        let parser = with_stack(|| self.factory.create_parser(grammar).map_err(|error| unusable(error.to_string())))?;
        let matcher = Matcher::new(Ok(parser));
        GrammarMask::start(matcher, scope, self.pool.clone()).map_err(|error| match error {
            MaskError::TooComplex { reason } => unusable(reason),
            MaskError::TokenNotAllowed { .. } => unusable(error.to_string()),
        })
    }
}

/// Runs `compile` on a thread of its own, whose stack is large enough for every schema that is not refused.
fn with_stack<T: Send>(compile: impl FnOnce() -> Result<T, SchemaError> + Send) -> Result<T, SchemaError> {
    thread::scope(|scope| {
        let named = thread::Builder::new().name("schema".into()).stack_size(size::STACK);
        match named.spawn_scoped(scope, compile) {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(error) => Err(SchemaError::Unusable { reason: format!("there is no thread to compile it: {error}") }),
        }
    })
}

/// The engine's refusals in our words, where a client can do something about them.
fn unusable(reason: String) -> SchemaError {
    if reason.starts_with("oneOf") {
        return SchemaError::OverlappingOneOf;
    }
    SchemaError::Unusable { reason: first_line(&reason) }
}

/// The first line of a message of the engine, without what is only for its own authors.
pub(crate) fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or_default().chars().take(200).collect()
}
