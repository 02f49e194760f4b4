//! Request fields that several surfaces share: sampling, stop strings, budget.

use crate::reader::{Fields, Node};
use crate::settings::ThinkingSampling;
use crate::thinking::Wanted;
use crate::{ApiError, Settings, limits};
use ds4_engine::Sampling;
use ds4_model::ThinkingMode;
use serde_json::Value;

/// Reads `temperature`, `top_p`, `top_k`, `min_p` and `seed`. What the client sends is honoured (unless the operator
/// fixed sampling for answers that reason), what is out of range is refused, what is absent gets the default.
pub(crate) fn sampling(fields: Fields<'_>, wanted: Wanted, settings: &Settings) -> Result<Sampling, ApiError> {
    let asked = asked(fields)?;
    let fixed = wanted.thinking == ThinkingMode::On && settings.thinking_sampling == ThinkingSampling::Fixed;
    Ok(if fixed { Sampling { seed: asked.seed, ..Sampling::DEFAULT } } else { asked })
}

fn asked(fields: Fields<'_>) -> Result<Sampling, ApiError> {
    let default = Sampling::DEFAULT;
    let temperature = fields.number("temperature", "a number from 0 to 2", |t| (0.0..=2.0).contains(&t))?;
    let top_p = fields.number("top_p", "a number above 0 and up to 1", |p| p > 0.0 && p <= 1.0)?;
    let min_p = fields.number("min_p", "a number from 0 to 1", |p| (0.0..=1.0).contains(&p))?;
    Ok(Sampling {
        temperature: temperature.map_or(default.temperature, |t| t as f32),
        // A value that rounds to zero still keeps the likeliest token.
        top_p: top_p.map_or(default.top_p, |p| (p as f32).max(f32::MIN_POSITIVE)),
        top_k: fields.count("top_k")?.unwrap_or(default.top_k),
        min_p: min_p.map_or(default.min_p, |p| p as f32),
        seed: seed(fields)?,
    })
}

/// A positive seed makes the draw repeatable; zero and negative ones mean "any".
fn seed(fields: Fields<'_>) -> Result<Option<u64>, ApiError> {
    let seed = fields.get("seed").map(|node| node.integer()).transpose()?;
    Ok(seed.and_then(|seed| u64::try_from(seed).ok()).filter(|&seed| seed > 0))
}

/// Reads stop strings from the field `name`: a string or an array of strings. Empty ones are dropped.
pub(crate) fn stop<'a>(fields: Fields<'a>, name: &'a str) -> Result<Vec<String>, ApiError> {
    let Some(node) = fields.get(name) else { return Ok(Vec::new()) };
    if node.value().is_string() {
        return Ok(one_stop(&node)?.into_iter().collect());
    }
    let list = node.value().as_array().ok_or_else(|| node.refuse("must be a string or an array of strings"))?;
    if list.len() > limits::STOPS_MAX {
        return Err(node.refuse(format!("has {} strings, the limit is {}", list.len(), limits::STOPS_MAX)));
    }
    let stops = list.iter().enumerate().map(|(index, value)| one_stop(&node.item(index, value)));
    stops.filter_map(Result::transpose).collect()
}

fn one_stop(node: &Node<'_>) -> Result<Option<String>, ApiError> {
    let text = node.str()?;
    if text.len() > limits::STOP_LEN_MAX {
        return Err(node.refuse(format!("has {} bytes, the limit is {}", text.len(), limits::STOP_LEN_MAX)));
    }
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

/// Whether the counts are wanted at the end of a stream.
pub(crate) fn include_usage(fields: Fields<'_>) -> Result<bool, ApiError> {
    let Some(node) = fields.get("stream_options") else { return Ok(false) };
    Ok(node.fields()?.bool("include_usage")?.unwrap_or(false))
}

/// Refuses what would change the answer's meaning and does not work yet, by name. Neutral values pass.
pub(crate) fn refuse_unsupported(fields: Fields<'_>) -> Result<(), ApiError> {
    refuse(fields, &UNSUPPORTED)
}

/// A field that does nothing yet, and which of its values ask for nothing.
type Unsupported = (&'static str, fn(&Value) -> bool);

const UNSUPPORTED: [Unsupported; 8] = [
    ("n", |value| value.as_f64() == Some(1.0)),
    ("logit_bias", |value| value.as_object().is_some_and(|map| map.is_empty())),
    ("frequency_penalty", |value| value.as_f64() == Some(0.0)),
    ("presence_penalty", |value| value.as_f64() == Some(0.0)),
    ("prediction", |_| false),
    ("modalities", |value| value.as_array().is_some_and(|list| list.iter().all(|item| item == "text"))),
    ("audio", |_| false),
    ("functions", |value| value.as_array().is_some_and(|list| list.is_empty())),
];

/// The same for what only raw completions have.
pub(crate) fn refuse_unsupported_in_completions(fields: Fields<'_>) -> Result<(), ApiError> {
    refuse(fields, &UNSUPPORTED_IN_COMPLETIONS)
}

const UNSUPPORTED_IN_COMPLETIONS: [Unsupported; 3] = [
    ("suffix", |value| value == ""),
    ("best_of", |value| value.as_f64() == Some(1.0)),
    ("tools", |value| value.as_array().is_some_and(|list| list.is_empty())),
];

fn refuse(fields: Fields<'_>, unsupported: &[Unsupported]) -> Result<(), ApiError> {
    for (name, is_neutral) in unsupported {
        if let Some(node) = fields.get(name).filter(|node| !is_neutral(node.value())) {
            return Err(node.refuse("is not supported; leave it out"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn with<T>(body: Value, read: impl Fn(Fields<'_>) -> Result<T, ApiError>) -> Result<T, String> {
        let node = Node::bare(&body);
        read(node.fields().unwrap()).map_err(|error| error.message().to_owned())
    }

    fn stops(fields: Fields<'_>) -> Result<Vec<String>, ApiError> {
        stop(fields, "stop")
    }

    #[test]
    fn what_is_out_of_range_is_refused_by_name() {
        for (body, message) in [
            (json!({"temperature": 2.1}), "temperature: must be a number from 0 to 2"),
            (json!({"temperature": -0.1}), "temperature: must be a number from 0 to 2"),
            (json!({"temperature": "1"}), "temperature: must be a number"),
            (json!({"top_p": 0}), "top_p: must be a number above 0 and up to 1"),
            (json!({"top_p": 1.01}), "top_p: must be a number above 0 and up to 1"),
            (json!({"min_p": -0.5}), "min_p: must be a number from 0 to 1"),
            (json!({"top_k": -1}), "top_k must be >= 0"),
            (json!({"top_k": 1.5}), "top_k: must be an integer"),
            (json!({"seed": "7"}), "seed: must be an integer"),
        ] {
            assert_eq!(with(body, asked), Err(message.to_owned()));
        }
    }

    #[test]
    fn defaults_hold_where_the_request_is_silent_or_null() {
        let silent = json!({"temperature": null, "top_p": null, "top_k": null, "min_p": null, "seed": null});
        assert_eq!(with(silent, asked), Ok(Sampling::DEFAULT));
        assert_eq!(with(json!({"seed": 0}), asked).unwrap().seed, None);
        assert_eq!(with(json!({"seed": 7}), asked).unwrap().seed, Some(7));
        assert_eq!(with(json!({"temperature": 0}), asked).unwrap().temperature, 0.0);
    }

    #[test]
    fn stop_takes_a_string_or_a_short_list_of_short_strings() {
        assert_eq!(with(json!({"stop": "x"}), stops).unwrap(), ["x"]);
        assert_eq!(with(json!({"stop": ["a", "", "b"]}), stops).unwrap(), ["a", "b"]);
        assert_eq!(with(json!({"stop": ""}), stops).unwrap(), Vec::<String>::new());
        for (body, message) in [
            (json!({"stop": 3}), "stop: must be a string or an array of strings"),
            (json!({"stop": ["a", 3]}), "stop[1]: must be a string"),
            (json!({"stop": vec!["a"; 17]}), "stop: has 17 strings, the limit is 16"),
            (json!({"stop": ["x".repeat(257)]}), "stop[0]: has 257 bytes, the limit is 256"),
        ] {
            assert_eq!(with(body, stops), Err(message.to_owned()));
        }
    }

    #[test]
    fn unsupported_fields_are_refused_by_name_and_neutral_values_pass() {
        let neutral = json!({"n": 1, "logit_bias": {}, "frequency_penalty": 0.0,
            "presence_penalty": 0, "prediction": null, "modalities": ["text"], "audio": null, "functions": []});
        assert_eq!(with(neutral, refuse_unsupported), Ok(()));
        for (name, value) in [
            ("n", json!(2)),
            ("logit_bias", json!({"1": 3})),
            ("frequency_penalty", json!(0.1)),
            ("presence_penalty", json!(-1)),
            ("prediction", json!({"type": "content"})),
            ("modalities", json!(["audio"])),
            ("audio", json!({"voice": "x"})),
            ("functions", json!([{"name": "f"}])),
        ] {
            let message = format!("{name}: is not supported; leave it out");
            assert_eq!(with(json!({ name: value }), refuse_unsupported), Err(message));
        }
    }
}
