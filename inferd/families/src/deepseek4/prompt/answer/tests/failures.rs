//! Blocks that are not sound: repaired, tried once more, or text.

use super::*;
use ds4_model::CallRelease;

const OPEN: &str = "ok\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"bash\">\n<｜DSML｜parameter name=\"command\" string=\"true\">ls";

fn live(text: &str, ending: Ending) -> Heard {
    read_with(tools(), Channel::Content, &tokens(text), ending)
}

fn whole(text: &str, ending: Ending) -> Heard {
    let tools = ToolUse { release: CallRelease::Whole, ..tools() };
    read_with(tools, Channel::Content, &tokens(text), ending)
}

#[test]
fn missing_closing_tags_are_added_when_the_model_ended_its_answer() {
    for closers in [
        "",
        "</｜DSML｜para",
        "</｜DSML｜parameter>",
        "</｜DSML｜parameter>\n",
        "</｜DSML｜parameter>\n</｜DSML｜invoke>",
        "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls",
        "</｜DSML｜parameter>\n</｜DSML｜tool_calls>",
        "</parameter>\n</invoke>\n</tool_calls>",
    ] {
        let heard = whole(&format!("{OPEN}{closers}"), AT_ONCE);
        assert_eq!(heard.complete(), [("bash", r#"{"command":"ls"}"#)], "{closers}");
        assert_eq!((heard.content.as_str(), heard.end.outcome), ("ok", Some(ToolOutcome::Repaired)), "{closers}");
    }
    let heard = live(&format!("{OPEN}</｜DSML｜parameter>\n"), AT_ONCE);
    assert_eq!(heard.complete(), [("bash", r#"{"command":"ls"}"#)]);
}

#[test]
fn a_value_that_the_budget_cut_is_not_taken_for_complete() {
    let heard = whole(OPEN, Ending::OutOfTokens);
    assert_eq!((heard.content.as_str(), heard.calls.len(), heard.end.outcome), (OPEN, 0, Some(ToolOutcome::Failed)));
    // Its beginning was shown: nothing is closed, and no markup appears as text.
    let heard = live(OPEN, Ending::OutOfTokens);
    assert_eq!((heard.content.as_str(), heard.end.calls), ("ok", 0));
    assert_eq!(heard.calls[0], HeardCall { name: "bash".into(), json: "{\"command\":\"ls".into(), ended: false });
    // After its last parameter it is.
    let heard = whole(&format!("{OPEN}</｜DSML｜parameter>\n"), Ending::OutOfTokens);
    assert_eq!(heard.complete(), [("bash", r#"{"command":"ls"}"#)]);
}

#[test]
fn a_malformed_block_that_nobody_saw_is_tried_once_more() {
    for broken in [
        "<｜DSML｜invoke>",
        "<｜DSML｜parameter name=\"a\" string=\"true\">",
        "text",
        "<｜DSML｜invoke name=\"bash\">\nx",
    ] {
        let text = format!("ok\n\n<｜DSML｜tool_calls>\n{broken}");
        let heard = whole(&text, Ending::EndOfTurn { room: Tokens(10_000) });
        let tail = heard.again.expect("a second attempt");
        assert!(heard.calls.is_empty() && heard.content == "ok");
        assert!(matches!(tail.pieces().first(), Some(ds4_model::Piece::Control(TokenId(1)))));
        // Where it does not fit, the block is text.
        let heard = whole(&text, AT_ONCE);
        assert_eq!((heard.content, heard.end.outcome), (text, Some(ToolOutcome::Failed)), "{broken}");
    }
}

#[test]
fn a_second_attempt_is_the_last() {
    let conversation =
        Conversation { tools: ToolUse { release: CallRelease::Whole, ..tools() }, ..Conversation::default() };
    let room = Ending::EndOfTurn { room: Tokens(10_000) };
    let bad = tokens("<｜DSML｜tool_calls>\nbad");
    let mut reader = Reader::new(protocol(), Channel::Content, &conversation, &Arc::default());
    assert!(hear(&mut reader, &bad, room).again.is_some());
    let good = tokens("<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>");
    let heard = hear(&mut reader, &good, room);
    assert_eq!((heard.complete(), heard.end.outcome), (vec![("now", "{}")], Some(ToolOutcome::Retried)));
    assert!(heard.end.fault.is_some());

    let mut reader = Reader::new(protocol(), Channel::Content, &conversation, &Arc::default());
    assert!(hear(&mut reader, &bad, room).again.is_some());
    let heard = hear(&mut reader, &bad, room);
    assert_eq!((heard.again, heard.content.as_str()), (None, "<｜DSML｜tool_calls>\nbad"));
    assert_eq!(heard.end.outcome, Some(ToolOutcome::Failed));
}

#[test]
fn complete_calls_count_whatever_follows_them() {
    let good = "<｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>\n";
    for rest in [
        "text",
        "<｜DSML｜invoke>",
        "<｜DSML｜invoke name=\"bash\">\n<｜DSML｜parameter name=\"command\" string=\"true\">l",
    ] {
        let heard = whole(&format!("<｜DSML｜tool_calls>\n{good}{rest}"), Ending::OutOfTokens);
        assert_eq!((heard.complete(), heard.content.as_str()), (vec![("now", "{}")], ""), "{rest}");
        assert_eq!(heard.end.outcome, Some(ToolOutcome::Repaired));
    }
}

#[test]
fn a_forgotten_end_of_reasoning_is_implied_only_by_a_block_that_ends_the_answer() {
    let block = "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>";
    let reason = |text: String| read_with(tools(), Channel::Reasoning, &tokens(&text), AT_ONCE);
    let heard = reason(format!("I call it.\n\n{block}\n"));
    assert_eq!((heard.reasoning.as_str(), heard.complete()), ("I call it.", vec![("now", "{}")]));
    assert_eq!((heard.end.outcome, heard.end.reasoning_open), (Some(ToolOutcome::ImpliedClose), false));

    let unknown = block.replace("now", "nothing");
    for quoted in [
        format!("As in\n{block}\nbut not yet."),
        format!("hm {unknown}"),
        "hm </｜DSML｜tool_calls>".to_owned(),
        format!("hm <｜DSML｜tool_calls>x{block}y"),
        "hm <｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"now\">".to_owned(),
    ] {
        let heard = reason(quoted.clone());
        assert_eq!((heard.reasoning, heard.end.reasoning_open, heard.calls.len()), (quoted, true, 0));
    }
    let heard = reason(format!("Plan: {block}</think>{block}"));
    assert_eq!((heard.reasoning.clone(), heard.complete()), (format!("Plan: {block}"), vec![("now", "{}")]));
    assert_eq!(heard.end.outcome, Some(ToolOutcome::Ok));
}

#[test]
fn a_tool_that_may_not_be_called_now_is_a_fault() {
    let tools = ToolUse { allowed: Some(vec!["now".into()]), release: CallRelease::Whole, ..tools() };
    let text = "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"bash\">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>";
    let heard = read_with(tools, Channel::Content, &tokens(text), Ending::EndOfTurn { room: Tokens(10_000) });
    assert!(heard.again.is_some());
}

#[test]
fn forced_calls_are_given_their_beginning_and_single_calls_their_end() {
    let forced = |choice: ToolChoice, parallel: bool| {
        let tools = ToolUse { choice, parallel, ..tools() };
        let conversation = Conversation { tools, ..Conversation::default() };
        Reader::new(protocol(), Channel::Reasoning, &conversation, &Arc::default())
    };
    let mut events = Vec::new();
    let mut reader = forced(ToolChoice::Named("now".into()), false);
    assert_eq!(reader.next(), NextToken::Sampled);
    tokens("hm</think>").into_iter().for_each(|token| reader.push(token, &mut events));
    let NextToken::Forced(given) = reader.next() else { panic!("not forced") };
    assert_eq!(given, tokens("\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"now\">\n"));
    given.into_iter().for_each(|token| reader.push(token, &mut events));
    assert_eq!(reader.next(), NextToken::Greedy);
    tokens("</｜DSML｜invoke>").into_iter().for_each(|token| reader.push(token, &mut events));
    assert_eq!(reader.next(), NextToken::Forced(tokens("\n</｜DSML｜tool_calls>")));
    tokens("\n").into_iter().for_each(|token| reader.push(token, &mut events));
    let NextToken::Forced(given) = reader.next() else { panic!("not forced") };
    assert_eq!(given, tokens("</｜DSML｜tool_calls>"));
    given.into_iter().for_each(|token| reader.push(token, &mut events));
    assert_eq!(reader.next(), NextToken::Complete);
    assert!(matches!(reader.finish(AT_ONCE, &mut events), AnswerEnd::Done(AnswerSummary { calls: 1, .. })));

    let mut reader = forced(ToolChoice::Required, true);
    tokens("</think>").into_iter().for_each(|token| reader.push(token, &mut events));
    assert_eq!(reader.next(), NextToken::Forced(tokens("\n\n<｜DSML｜tool_calls>\n")));
}

#[test]
fn reasoning_that_just_ends_still_owes_a_required_call() {
    let after = |choice: ToolChoice, said: &str| {
        let tools = ToolUse { choice, ..tools() };
        let conversation = Conversation { tools, ..Conversation::default() };
        let mut reader = Reader::new(protocol(), Channel::Reasoning, &conversation, &Arc::default());
        tokens(said).into_iter().for_each(|token| reader.push(token, &mut Vec::new()));
        reader
    };
    let end = Some(tokens("</think>"));
    assert_eq!(after(ToolChoice::Required, "hm").instead_of_ending(), end);
    assert_eq!(after(ToolChoice::Named("now".into()), "").instead_of_ending(), end);
    assert_eq!(after(ToolChoice::Auto, "hm").instead_of_ending(), None);
    assert_eq!(after(ToolChoice::Required, "hm</think>").instead_of_ending(), None, "its call is forced already");
    let block = "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"now\">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>";
    assert_eq!(after(ToolChoice::Required, block).instead_of_ending(), None, "its end was forgotten, its call was not");
    assert_eq!(after(ToolChoice::Required, &format!("{block} or so")).instead_of_ending(), end);
}
