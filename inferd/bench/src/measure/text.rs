//! What prompts are made of.

use crate::config::Args;
use crate::error::BenchError;
use ds4_model::Tokenizer;
use ds4_units::TokenId;

#[path = "../words.rs"]
mod words;

/// Words of the made-up text: far more tokens than any vocabulary merges into few.
const WORDS: usize = 8192;

/// The tokens of the prompt's text; prompts take from them as many as they need, from the beginning again at the end.
pub(crate) fn tokens(args: &Args, tokenizer: &Tokenizer) -> Result<Vec<TokenId>, BenchError> {
    let text = match &args.prompt_file {
        Some(path) => std::fs::read_to_string(path)
            .map_err(|error| BenchError::Read { path: path.clone(), cause: error.to_string() })?,
        None => words::words(1, WORDS),
    };
    let mut tokens = Vec::new();
    tokenizer.encode_text(&text, &mut tokens);
    if tokens.is_empty() { Err(BenchError::NoTokens) } else { Ok(tokens) }
}
