//! What the model is told when its calls were malformed.

use crate::deepseek4::prompt::Protocol;
use crate::deepseek4::prompt::render;
use crate::deepseek4::prompt::wording::{CORRECTION_END, CORRECTION_START, GAP, TOOL_RESULT, TOOL_RESULT_END};
use ds4_model::{Channel, Prompt, ToolFault, ToolUse};

/// The end of the failed answer, a result that says what was wrong, the tools again, and the opening of another answer.
pub(super) fn tail(protocol: &Protocol, tools: &ToolUse, fault: Option<&ToolFault>, opens: Channel) -> Prompt {
    let markers = &protocol.markers;
    let mut prompt = Prompt::new();
    prompt.push_control(markers.end_of_sentence);
    prompt.push_control(markers.user);
    prompt.push_text(TOOL_RESULT);
    prompt.push_text(CORRECTION_START);
    prompt.push_text(fault.map_or("it could not be read", |fault| fault.problem));
    prompt.push_text(CORRECTION_END);
    prompt.push_text(TOOL_RESULT_END);
    prompt.push_text(GAP);
    render::tools(protocol, &mut prompt, &[&tools.schemas]);
    prompt.push_control(markers.assistant);
    prompt.push_control(match opens {
        Channel::Reasoning => markers.think,
        Channel::Content => markers.end_think,
    });
    prompt
}
