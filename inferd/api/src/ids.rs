//! Random ids of replies and requests.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// `prefix` and 24 hexadecimal digits from the operating system's generator.
fn random(prefix: &str) -> String {
    let mut bytes = [0u8; 12];
    ChaCha8Rng::from_os_rng().fill_bytes(&mut bytes);
    let mut id = String::from(prefix);
    for byte in bytes {
        id.push_str(&format!("{byte:02x}"));
    }
    id
}

/// The id of an HTTP request.
pub(crate) fn request() -> String {
    random("req_")
}

/// The id of a chat completion.
pub(crate) fn chat_completion() -> String {
    random("chatcmpl-")
}

/// The id of a completion.
pub(crate) fn completion() -> String {
    random("cmpl-")
}

/// The id of a message of the Messages protocol.
pub(crate) fn message() -> String {
    random("msg_")
}

/// The id of a response.
pub(crate) fn response() -> String {
    random("resp_")
}

/// The id of an output item whose type says `prefix`.
pub(crate) fn item(prefix: &str) -> String {
    random(prefix)
}
