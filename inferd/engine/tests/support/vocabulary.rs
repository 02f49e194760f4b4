//! The bytes 0 to 255 as tokens 0 to 255, then control tokens.

use ds4_model::{Tokenizer, VocabularyParts};
use ds4_units::TokenId;

pub const BOS: TokenId = TokenId(256);
pub const EOS: TokenId = TokenId(257);
pub const USER: TokenId = TokenId(258);
pub const ASSISTANT: TokenId = TokenId(259);
pub const THINK: TokenId = TokenId(260);
pub const THINK_END: TokenId = TokenId(261);
/// Opens an answer in the protocol of a family, as [`ASSISTANT`] does in the plain one.
pub const FAMILY_ASSISTANT: TokenId = TokenId(265);
pub const SIZE: usize = 274;

/// The tokens of the plain protocol, then those that a family's protocol looks for.
const CONTROLS: [&str; 18] = [
    "<bos>",
    "<eos>",
    "<user>",
    "<assistant>",
    "<think>",
    "</think>",
    "<｜begin▁of▁sentence｜>",
    "<｜end▁of▁sentence｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "｜DSML｜",
    "<｜latest_reminder｜>",
    "<｜action｜>",
    "<｜query｜>",
    "<｜authority｜>",
    "<｜domain｜>",
    "<｜title｜>",
    "<｜read_url｜>",
];

pub fn tokenizer() -> Tokenizer {
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
    let parts = VocabularyParts { tokens: &tokens, types: &types, merges: &[], split: "joyai-llm" };
    Tokenizer::from_parts(parts).unwrap()
}

/// The tokens of a text, and control tokens spelled out.
pub fn tokens(text: &str) -> Vec<TokenId> {
    tokenizer().encode(&tokenizer().parse_trusted(text))
}
