//! What holds for any text.

use super::calls::bytes;
use super::*;
use ds4_model::CallRelease;
use proptest::prelude::*;

/// Texts with everything that is hard to cut: sound blocks, broken ones, and near misses.
pub(super) const VECTORS: [&str; 14] = [
    "ok 😀\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"bash\">\n<｜DSML｜parameter name=\"command\" string=\"true\">é\r\n\0&am</｜DSML｜par|&lt;/｜DSML｜parameter></｜DSML｜parameter>\n<｜DSML｜parameter name=\"env\" string=\"false\">{\"a\": \"</｜DSML｜parameter>\"}</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
    "\n<tool_calls>\n  <invoke name=\"edit\">\n<parameter name=\"text\" string=\"true\"><b></b></parameter></invoke></tool_calls>",
    "<DSML｜tool_calls><DSML｜invoke name=\"bash\"><DSML｜parameter name=\"timeout\" string=\"true\">12</DSML｜parameter></DSML｜invoke></DSML｜tool_calls> x",
    "2 <",
    "a < b <｜ <｜DSML｜ <tool_calls> </think> </｜DSML｜tool_calls>\n",
    "<｜DSML｜tool_calls>\n</｜DSML｜tool_calls>",
    "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"bash\">\n<｜DSML｜parameter name=\"command\" string=\"true\">ls",
    "<｜DSML｜tool_calls>\nbad",
    "x <｜DSML｜invoke name=\"now\"></｜DSML｜invoke>",
    "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"bash\">\n<｜DSML｜parameter name=\"env\">\n<｜DSML｜parameter name=\"A\" string=\"true\">1</｜DSML｜parameter>\n</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜tool_calls>",
    "```\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>\n```",
    "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"bash\">\n<｜DSML｜parameter name=\"env\" string=\"false\">{\"a</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
    " \n\n ",
    // Last, since damage to the first of its openings makes it text before a sound block.
    "<｜DSML｜tool_calls>\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"bash\">\n<｜DSML｜parameter name=\"arguments\" string=\"false\">{\"command\": 1}</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
];

/// Reads text that comes in parts, without ids, which differ from time to time.
fn read_parts(release: CallRelease, opens: Channel, parts: &[&str]) -> Heard {
    let conversation = Conversation { tools: ToolUse { release, ..tools() }, ..Conversation::default() };
    let mut reader = Reader::new(protocol(), opens, &conversation, &Arc::default());
    let mut heard = Heard::default();
    let mut events = Vec::new();
    for part in parts {
        if reader.next() == NextToken::Complete {
            break;
        }
        reader.surface.ledger.push(part.len(), false);
        reader.surface.push(part, &mut events);
        heard.add(std::mem::take(&mut events));
    }
    let AnswerEnd::Done(end) = reader.finish(AT_ONCE, &mut events) else { panic!("no room for more") };
    heard.add(events);
    heard.end = comparable(end);
    heard
}

/// Where it was cut decides what the excerpt of a fault shows, and what is remembered goes by calls' ids.
fn comparable(end: AnswerSummary) -> AnswerSummary {
    AnswerSummary { fault: None, sampled: Vec::new(), ..end }
}

/// Both heard the same. An answer that is given up at a fault ends with the part that showed it, which may hold more.
fn assert_same(heard: &Heard, expected: &Heard, context: &str) {
    let mut heard = heard.clone();
    if heard.end.outcome == Some(ToolOutcome::Failed) && heard.content.starts_with(&expected.content) {
        heard.content.truncate(expected.content.len());
    }
    assert_eq!(&heard, expected, "{context}");
}

fn assert_cuts_change_nothing(text: &str) {
    for release in [CallRelease::Live, CallRelease::Whole] {
        for opens in [Channel::Reasoning, Channel::Content] {
            // Character by character is what every other cut is compared with: nothing is known ahead there.
            let cuts: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            let singles: Vec<&str> = cuts.windows(2).map(|cut| &text[cut[0]..cut[1]]).collect();
            let expected = read_parts(release, opens, &singles);
            let by_bytes = read_with(ToolUse { release, ..tools() }, opens, &bytes(text), AT_ONCE);
            let by_bytes = Heard { end: comparable(by_bytes.end.clone()), ..by_bytes };
            assert_same(&by_bytes, &expected, &format!("{text:?} {release:?} {opens:?} byte by byte"));
            for &cut in &cuts {
                let heard = read_parts(release, opens, &[&text[..cut], &text[cut..]]);
                assert_same(&heard, &expected, &format!("{text:?} {release:?} {opens:?} cut at {cut}"));
            }
        }
    }
}

#[test]
fn where_the_text_is_cut_changes_nothing() {
    VECTORS.into_iter().for_each(assert_cuts_change_nothing);
}

/// Text made of what matters.
fn fragments() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("<｜DSML｜tool_calls>\n"),
        Just("</｜DSML｜tool_calls>"),
        Just("<｜DSML｜invoke name=\"bash\">\n"),
        Just("</｜DSML｜invoke>\n"),
        Just("<｜DSML｜parameter name=\"command\" string=\"true\">"),
        Just("<｜DSML｜parameter name=\"env\" string=\"false\">"),
        Just("</｜DSML｜parameter>\n"),
        Just("{\"a\": 1}"),
        Just("</parameter>"),
        Just("<parameter name=\"x\">"),
        Just("<invoke name=\"now\">"),
        Just("</"),
        Just("<"),
        Just("｜"),
        Just("text"),
        Just(" \n"),
        Just("&lt;/"),
        Just("\""),
        Just("\\"),
        Just("😀"),
        Just("<tool_calls>\n"),
    ];
    proptest::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
}

/// One of the vectors but the last with a character removed, doubled or replaced.
fn damaged() -> impl Strategy<Value = String> {
    (0..VECTORS.len() - 1, any::<prop::sample::Index>(), 0..3usize, any::<char>()).prop_map(|(vector, at, how, c)| {
        let mut characters: Vec<char> = VECTORS[vector].chars().collect();
        let at = at.index(characters.len());
        match how {
            0 => drop(characters.remove(at)),
            1 => characters.insert(at, characters[at]),
            _ => characters[at] = c,
        }
        characters.into_iter().collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn no_text_is_cut_into_something_else(text in fragments()) {
        assert_cuts_change_nothing(&text);
    }

    #[test]
    fn complete_calls_have_arguments_that_are_an_object(text in prop_oneof![fragments(), damaged()]) {
        for release in [CallRelease::Live, CallRelease::Whole] {
            let heard = read_parts(release, Channel::Content, &[&text]);
            for (_, json) in heard.complete() {
                let json = JsonText::parse(json).expect("JSON");
                prop_assert!(json.members().is_some());
            }
        }
    }

    #[test]
    fn an_answer_with_calls_shows_no_markup(text in damaged()) {
        let heard = read_parts(CallRelease::Whole, Channel::Content, &[&text]);
        if heard.end.calls > 0 {
            prop_assert!(!heard.content.contains("DSML｜"), "{}", heard.content);
        }
    }

    #[test]
    fn arguments_come_back_from_the_markup_they_are_printed_in(
        members in proptest::collection::vec((key(), value()), 0..5),
        name in "[a-z_<>&\"]{1,12}",
    ) {
        let json: Vec<String> = members.iter().map(|(key, value)| format!("{}:{value}", JsonText::from_str_value(key).as_str())).collect();
        let json = format!("{{{}}}", json.join(","));
        let call = ds4_model::ToolCall {
            id: String::new(),
            name: name.clone(),
            arguments: ds4_model::ToolArguments::parse(&json),
        };
        let mut prompt = Prompt::new();
        super::super::super::dsml::print(&mut prompt, &protocol().markers, &[call]);
        let heard = read_with(tools(), Channel::Content, &tokenizer().encode(&prompt), AT_ONCE);
        prop_assert_eq!(heard.complete(), vec![(name.as_str(), json.as_str())]);
        prop_assert_eq!(heard.content, "");
    }
}

/// Texts that hold what the markup is made of.
fn hard_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[a-z ]{0,6}",
        Just("</｜DSML｜parameter>".to_owned()),
        Just("</DSML｜parameter>".to_owned()),
        Just("</parameter>".to_owned()),
        Just("</｜DSML｜param".to_owned()),
        Just("&amp;&lt;".to_owned()),
        Just("\"\\\n\u{1}".to_owned()),
        Just("😀é｜".to_owned()),
        Just("<｜DSML｜invoke name=\"x\">".to_owned()),
        Just("</｜DSML｜tool_calls>".to_owned()),
    ];
    proptest::collection::vec(piece, 0..4).prop_map(|pieces| pieces.concat())
}

/// A name; one that stands for all arguments is another test's.
fn key() -> impl Strategy<Value = String> {
    hard_text().prop_map(|text| format!("k{text}"))
}

/// The minified JSON of a value.
fn value() -> impl Strategy<Value = String> {
    let text = hard_text().prop_map(|text| JsonText::from_str_value(&text).as_str().to_owned());
    let leaf = prop_oneof![text, Just("null".into()), Just("true".into()), Just("1.50".into()), Just("-7e3".into())];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(|items| format!("[{}]", items.join(","))),
            (hard_text(), inner)
                .prop_map(|(key, value)| { format!("{{{}:{value}}}", JsonText::from_str_value(&key).as_str()) }),
        ]
    })
}
