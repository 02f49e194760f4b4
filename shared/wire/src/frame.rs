//! The body of a frame: bincode, always with a size limit, so that a few bytes cannot claim gigabytes.

use crate::WireError;
use bincode::config::{self, Configuration, Limit, LittleEndian, Varint};
use bincode::{Decode, Encode};

/// The longest body. All tables of an owner with some 20,000 ranges fit.
pub const FRAME_BODY_MAX: usize = 1_048_576;

type Config = Configuration<LittleEndian, Varint, Limit<FRAME_BODY_MAX>>;

const CONFIG: Config = config::standard().with_limit::<FRAME_BODY_MAX>();

/// The body of this message.
pub fn encode(message: &impl Encode) -> Result<Vec<u8>, WireError> {
    let body = bincode::encode_to_vec(message, CONFIG)
        .map_err(|error| WireError::Malformed { reason: format!("cannot encode: {error}") })?;
    if body.len() > FRAME_BODY_MAX {
        return Err(WireError::TooLong { len: body.len() as u64 });
    }
    Ok(body)
}

/// The message in this body, which must be one message and nothing more.
pub fn decode<M: Decode<()>>(body: &[u8]) -> Result<M, WireError> {
    let (message, used) =
        bincode::decode_from_slice(body, CONFIG).map_err(|error| WireError::Malformed { reason: error.to_string() })?;
    if used != body.len() {
        return Err(WireError::Malformed { reason: format!("{} bytes after its end", body.len() - used) });
    }
    Ok(message)
}
