//! API keys: a secret that never prints and takes the same time to compare whatever it is compared with.

use http::{HeaderMap, header};
use std::fmt;
use subtle::{Choice, ConstantTimeEq};

/// A key that opens the server. All keys open everything: they are one domain of trust.
#[derive(Clone)]
pub struct ApiKey(Box<str>);

impl ApiKey {
    /// Wraps a key; `None` when it is empty or holds what no header can carry.
    pub fn new(key: &str) -> Option<ApiKey> {
        let sound = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
        sound.then(|| ApiKey(key.into()))
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(hidden)")
    }
}

/// Whether a request may pass: always without keys, else with one of them. Every key is compared, whole.
pub(crate) fn opens(keys: &[ApiKey], headers: &HeaderMap) -> bool {
    if keys.is_empty() {
        return true;
    }
    let Some(given) = presented(headers) else { return false };
    let mut found = Choice::from(0);
    for key in keys {
        found |= key.0.as_bytes().ct_eq(given);
    }
    found.into()
}

fn presented(headers: &HeaderMap) -> Option<&[u8]> {
    if let Some(authorization) = headers.get(header::AUTHORIZATION) {
        let (scheme, key) = authorization.as_bytes().split_at_checked("Bearer ".len())?;
        return scheme.eq_ignore_ascii_case(b"Bearer ").then(|| key.trim_ascii());
    }
    headers.get("x-api-key").map(|key| key.as_bytes().trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(name: &'static str, value: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_static(value));
        headers
    }

    #[test]
    fn either_header_opens_and_a_wrong_key_does_not() {
        let keys = [ApiKey::new("first").unwrap(), ApiKey::new("second").unwrap()];
        assert!(opens(&keys, &headers("authorization", "Bearer second")));
        assert!(opens(&keys, &headers("authorization", "bearer first")));
        assert!(opens(&keys, &headers("x-api-key", "first")));
        for (name, value) in [
            ("authorization", "Bearer firs"),
            ("authorization", "Basic first"),
            ("authorization", "first"),
            ("x-api-key", ""),
            ("cookie", "first"),
        ] {
            assert!(!opens(&keys, &headers(name, value)), "{name}: {value}");
        }
        assert!(opens(&[], &HeaderMap::new()));
    }

    #[test]
    fn a_key_never_prints_and_is_never_empty() {
        assert_eq!(format!("{:?}", ApiKey::new("secret").unwrap()), "ApiKey(hidden)");
        assert!(ApiKey::new("").is_none() && ApiKey::new("a b").is_none() && ApiKey::new("ä").is_none());
    }
}
