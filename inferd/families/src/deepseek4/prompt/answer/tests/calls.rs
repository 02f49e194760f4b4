//! Well-formed calls in every spelling.

use super::*;

/// Reads an answer that begins in content.
fn calls(text: &str) -> Heard {
    read_with(tools(), Channel::Content, &tokens(text), AT_ONCE)
}

fn block(inside: &str) -> String {
    format!("\n\n<｜DSML｜tool_calls>\n{inside}</｜DSML｜tool_calls>")
}

fn invoke(name: &str, parameters: &str) -> String {
    format!("<｜DSML｜invoke name=\"{name}\">\n{parameters}</｜DSML｜invoke>\n")
}

fn parameter(name: &str, string: bool, value: &str) -> String {
    format!("<｜DSML｜parameter name=\"{name}\" string=\"{string}\">{value}</｜DSML｜parameter>\n")
}

#[test]
fn reasoning_text_and_a_call_come_apart() {
    let text = format!("hm</think>Let me see.{}", block(&invoke("bash", &parameter("command", true, "ls -l \"a b\""))));
    let heard = read_with(tools(), Channel::Reasoning, &tokens(&text), AT_ONCE);
    assert_eq!((heard.reasoning.as_str(), heard.content.as_str()), ("hm", "Let me see."));
    assert_eq!(heard.complete(), [("bash", r#"{"command":"ls -l \"a b\""}"#)]);
    assert_eq!(heard.end.outcome, Some(ToolOutcome::Ok));
    assert!(!heard.end.reasoning_open);
}

#[test]
fn twelve_calls_keep_their_order_and_their_own_ids() {
    let inside: String = (0..12).map(|n| invoke("edit", &parameter("path", true, &format!("f{n}")))).collect();
    let mut reader = Reader::new(
        protocol(),
        Channel::Content,
        &Conversation { tools: tools(), ..Conversation::default() },
        &Arc::default(),
    );
    let mut events = Vec::new();
    tokens(&block(&inside)).into_iter().for_each(|token| reader.push(token, &mut events));
    let mut ids = Vec::new();
    for event in events {
        if let AnswerEvent::Call { event: CallEvent::Start { index, id, .. }, .. } = event {
            assert_eq!(index as usize, ids.len());
            ids.push(id);
        }
    }
    let count = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!((count, ids.len()), (12, 12));
}

#[test]
fn a_call_without_parameters_has_an_empty_object() {
    for parameters in ["", "\n"] {
        assert_eq!(calls(&block(&invoke("now", parameters))).complete(), [("now", "{}")]);
    }
}

#[test]
fn a_block_may_mix_every_spelling() {
    let text = "<DSML｜tool_calls>\n<|DSML|invoke name=\"bash\">\n<invoke_me></invoke_me></invoke>";
    assert!(calls(text).complete().is_empty());
    let text = "<DSML｜tool_calls>\n<|DSML|invoke name=\"bash\">\n<｜｜DSML｜｜parameter string=\"true\" name=\"command\">ls\
                </DSML｜parameter>\n<parameter name=\"timeout\" string=\"false\">3</parameter>\n</invoke>\n\
                </｜DSML｜tool_ccalls>";
    assert_eq!(calls(text).complete(), [("bash", r#"{"command":"ls","timeout":3}"#)]);
    let plain = "ok\n<tool_calls>\n<invoke name=\"bash\">\n<parameter name=\"command\" string=\"true\">ls</parameter>\n\
                 </invoke>\n</tool_calls>";
    let heard = calls(plain);
    assert_eq!((heard.content.as_str(), heard.complete()), ("ok", vec![("bash", r#"{"command":"ls"}"#)]));
}

#[test]
fn text_about_markup_is_text() {
    for text in ["2 <", "a < b and <div>", "Write <tool_calls> here.", "<invoker>", "<tool_calls>\nno call", "a &lt; b"]
    {
        let heard = calls(text);
        assert_eq!((heard.content.as_str(), heard.calls.len()), (text, 0), "{text}");
    }
}

#[test]
fn values_keep_html_entities_and_plain_closing_tags() {
    let value = "<p>&lt;div&gt; &amp; </div></parameter>\r\n\0 😀 a</｜DSML\u{1}";
    let heard = calls(&block(&invoke("edit", &parameter("text", true, value))));
    let JsonText { .. } = JsonText::parse(heard.complete()[0].1).expect("JSON");
    let members = JsonText::parse(heard.complete()[0].1).expect("JSON").members().expect("an object");
    assert_eq!(members[0].1.to_string_value().as_deref(), Some(value));
    let escaped = calls(&block(&invoke("edit", &parameter("text", true, "a &lt;/｜DSML｜parameter> b"))));
    assert_eq!(escaped.complete(), [("edit", r#"{"text":"a </｜DSML｜parameter> b"}"#)]);
}

#[test]
fn types_follow_the_schema_where_it_leaves_no_doubt() {
    let inside = invoke(
        "bash",
        &(parameter("quiet", true, "true") + &parameter("timeout", false, "\"3\"") + &parameter("command", true, "7")),
    );
    let heard = calls(&block(&inside));
    assert_eq!(heard.complete(), [("bash", r#"{"quiet":true,"timeout":3,"command":"7"}"#)]);
    let literal = ToolUse { coerce: false, ..tools() };
    let heard = read_with(literal, Channel::Content, &tokens(&block(&inside)), AT_ONCE);
    assert_eq!(heard.complete(), [("bash", r#"{"quiet":"true","timeout":"3","command":"7"}"#)]);
}

#[test]
fn json_values_are_minified_and_keep_their_numbers_and_keys() {
    let inside =
        invoke("bash", &parameter("env", false, "{ \"b\": 1.50, \"a\": [\"</｜DSML｜parameter>\"], \"b\": 1e2 }"));
    assert_eq!(
        calls(&block(&inside)).complete(),
        [("bash", r#"{"env":{"b":1.50,"a":["</｜DSML｜parameter>"],"b":1e2}}"#)]
    );
}

#[test]
fn a_sole_parameter_that_holds_all_arguments_is_unwrapped() {
    let wrapped = parameter("arguments", true, "{\"command\": \"ls\", \"timeout\": 1}");
    assert_eq!(calls(&block(&invoke("bash", &wrapped))).complete(), [("bash", r#"{"command":"ls","timeout":1}"#)]);
    let not_alone = parameter("arguments", true, "{}") + &parameter("command", true, "ls");
    assert_eq!(
        calls(&block(&invoke("bash", &not_alone))).complete(),
        [("bash", r#"{"arguments":"{}","command":"ls"}"#)]
    );
    let no_object = parameter("input", true, "ls");
    assert_eq!(calls(&block(&invoke("bash", &no_object))).complete(), [("bash", r#"{"input":"ls"}"#)]);
    assert_eq!(calls(&block(&invoke("now", &parameter("arguments", true, "{}")))).complete(), [("now", "{}")]);
}

#[test]
fn a_tag_that_does_not_say_what_it_holds_is_text_or_an_object() {
    let text = block(
        "<｜DSML｜invoke name=\"bash\">\n<｜DSML｜parameter name=\"command\"> ls</｜DSML｜parameter>\n</｜DSML｜invoke>\n",
    );
    assert_eq!(calls(&text).complete(), [("bash", r#"{"command":" ls"}"#)]);
    let inner = parameter("A", true, "1") + &parameter("B", false, "2");
    let text = block(&format!(
        "<｜DSML｜invoke name=\"bash\">\n<｜DSML｜parameter name=\"env\">\n{inner}</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
    ));
    assert_eq!(calls(&text).complete(), [("bash", r#"{"env":{"A":"1","B":2}}"#)]);
}

#[test]
fn a_name_in_an_attribute_is_decoded_and_unknown_tools_are_called_too() {
    let heard = calls(&block(&invoke("no&quot;such", &parameter("a&lt;b", true, "1"))));
    assert_eq!(heard.complete(), [("no\"such", r#"{"a<b":"1"}"#)]);
}

#[test]
fn the_answer_ends_with_its_first_block() {
    let both = block(&invoke("now", "")) + &block(&invoke("bash", ""));
    assert_eq!(calls(&both).complete(), [("now", "{}")]);
}

#[test]
fn an_empty_block_is_nothing_and_orphans_are_dropped() {
    let heard = calls(&("ok".to_owned() + &block("")));
    assert_eq!((heard.content.as_str(), heard.end.outcome, heard.end.calls), ("ok", None, 0));
    assert_eq!(calls("done</｜DSML｜tool_calls>\n").content, "done\n");
    assert_eq!(calls("a</｜DSML｜invoke>b").content, "ab");
}

#[test]
fn a_call_without_its_block_is_a_call() {
    let heard = calls(&("ok\n\n".to_owned() + &invoke("now", "") + "</｜DSML｜tool_calls>"));
    assert_eq!((heard.content.as_str(), heard.complete()), ("ok", vec![("now", "{}")]));
    assert_eq!(heard.end.outcome, Some(ToolOutcome::Repaired));
}

#[test]
fn a_value_of_a_mebibyte_streams_as_it_comes() {
    let text = block(&invoke("edit", &parameter("text", true, &"line of a file\n".repeat(70_000))));
    let conversation = Conversation { tools: tools(), ..Conversation::default() };
    let mut reader = Reader::new(protocol(), Channel::Content, &conversation, &Arc::default());
    let (mut events, mut heard, mut most) = (Vec::new(), Heard::default(), 0);
    for token in tokens(&text) {
        reader.push(token, &mut events);
        // A fragment is there with its token, not at the end.
        most = most.max(events.iter().filter(|event| matches!(event, AnswerEvent::Call { .. })).count());
        heard.add(std::mem::take(&mut events));
    }
    assert!(most < 4, "{most}");
    assert_eq!(heard.calls[0].json.len(), r#"{"text":""}"#.len() + 70_000 * 16);
}

#[test]
fn calls_that_are_released_whole_come_in_three_parts() {
    let whole = ToolUse { release: ds4_model::CallRelease::Whole, ..tools() };
    let conversation = Conversation { tools: whole, ..Conversation::default() };
    let mut reader = Reader::new(protocol(), Channel::Content, &conversation, &Arc::default());
    let text = block(&(invoke("now", "") + &invoke("bash", &parameter("command", true, "ls"))));
    let tokens = tokens(&text);
    let mut events = Vec::new();
    let (last, first) = tokens.split_last().expect("tokens");
    first.iter().for_each(|&token| reader.push(token, &mut events));
    assert!(events.is_empty());
    reader.push(*last, &mut events);
    assert_eq!(events.len(), 6);
    let mut heard = Heard::default();
    assert_eq!(heard.add(events), tokens.len());
    assert_eq!(heard.complete(), [("now", "{}"), ("bash", r#"{"command":"ls"}"#)]);
}

#[test]
fn syntax_is_greedy_and_payload_is_sampled() {
    let conversation = Conversation { tools: tools(), ..Conversation::default() };
    let mut reader = Reader::new(protocol(), Channel::Content, &conversation, &Arc::default());
    let mut events = Vec::new();
    let mut trace = String::new();
    let text = "a\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"bash\">\n<｜DSML｜parameter name=\"command\" string=\"true\">\
                x</d></｜DSML｜parameter>\n<｜DSML｜parameter name=\"env\" string=\"false\">{\"k\":\"v\"}</｜DSML｜parameter>\n\
                </｜DSML｜invoke>\n</｜DSML｜tool_calls>";
    // Byte by byte, so that every position is asked for.
    for token in bytes(text) {
        trace.push(match reader.next() {
            NextToken::Sampled => 's',
            NextToken::Greedy => 'g',
            _ => panic!("nothing is given here"),
        });
        reader.push(token, &mut events);
    }
    assert_eq!(reader.next(), NextToken::Complete);
    let expected: String = [
        // Whether to call at all is the model's choice, up to the last byte of the opening.
        ("a\n\n<｜DSML｜tool_calls>", 's'),
        ("\n<｜DSML｜invoke name=\"bash\">\n<｜DSML｜parameter name=\"command\" string=\"true\">", 'g'),
        // A closing tag of the text itself makes its third byte greedy.
        ("x</", 's'),
        ("d", 'g'),
        ("></", 's'),
        ("｜DSML｜parameter>\n<｜DSML｜parameter name=\"env\" string=\"false\">{\"", 'g'),
        ("k\"", 's'),
        (":\"", 'g'),
        ("v\"", 's'),
        ("}</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>", 'g'),
    ]
    .iter()
    .map(|(text, state)| state.to_string().repeat(text.len()))
    .collect();
    assert_eq!(trace, expected);
}

/// Tokens of one byte each.
pub(super) fn bytes(text: &str) -> Vec<TokenId> {
    let tokenizer = tokenizer();
    let of_byte = |byte: u8| {
        let all = 0..tokenizer.vocabulary_len() as u32;
        let is_it =
            |token: &TokenId| !tokenizer.is_control(*token) && tokenizer.token_bytes(*token) == Some(&[byte][..]);
        all.map(TokenId).find(is_it).expect("a byte token")
    };
    let mut known = std::collections::HashMap::new();
    text.bytes().map(|byte| *known.entry(byte).or_insert_with(|| of_byte(byte))).collect()
}
