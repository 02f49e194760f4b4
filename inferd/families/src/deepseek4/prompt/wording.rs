//! The protocol's fixed texts. The model was trained on these bytes: none may change without a new renderer version.
//!
//! Spelled-out control tokens in [`TOOLS_HEAD`] are control tokens of the prompt.

use super::PromptProfile;
use ds4_model::{CallSyntax, Effort};

/// Between messages of one turn, and between a system text and what is attached to it.
pub(super) const GAP: &str = "\n\n";

/// Before the JSON schema of the reply.
pub(super) const RESPONSE_FORMAT: &str =
    "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";

/// Around what a tool returned.
pub(super) const TOOL_RESULT: &str = "<tool_result>";
pub(super) const TOOL_RESULT_END: &str = "</tool_result>";

/// At the end of results late in a long prompt, where models begin to announce calls instead of making them.
pub(super) const REMINDER: &str =
    "\n\n(If the next step needs a tool, call it in this answer; do not only announce it.)";

/// What a model reads after calls that could not be read, around what was wrong.
pub(super) const CORRECTION_START: &str = "Tool error: invalid DSML: ";
pub(super) const CORRECTION_END: &str = ". Nothing was executed. Write one well-formed block of tool calls, or answer in \
plain text.";

/// Before the tool schemas, one a line.
pub(super) const TOOLS_HEAD: &str = r##"## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<｜DSML｜tool_calls>" block like the following:

<｜DSML｜tool_calls>
<｜DSML｜invoke name="$TOOL_NAME">
<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>
...
</｜DSML｜invoke>
<｜DSML｜invoke name="$TOOL_NAME2">
...
</｜DSML｜invoke>
</｜DSML｜tool_calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

"##;

/// After the tool schemas.
pub(super) const TOOLS_TAIL: &str = r##"

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
"##;

const THOROUGH: &str = concat!(
    "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n",
    "You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the ",
    "root cause, rigorously stress-testing your logic against all potential paths, edge cases, and ",
    "adversarial scenarios.\n",
    "Explicitly write out your entire deliberation process, documenting every intermediate step, considered ",
    "alternative, and rejected hypothesis to ensure absolutely no assumption is left unchecked.\n",
    "\n",
);

const BEYOND: &str = concat!(
    "Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.\n",
    "You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively ",
    "decompose the problem into its most fundamental components, trace every causal chain to its root, and ",
    "resolve the underlying cause rather than any surface symptom.\n",
    "Do not stop reasoning until you have independently verified the solution from multiple angles and are ",
    "certain that no assumption remains unchecked and no error remains undiscovered.\n",
    "\n",
);

/// What the prompt says about effort, right at its start and in thinking mode only.
pub(super) fn effort(profile: PromptProfile, effort: Option<Effort>) -> &'static str {
    match (profile, effort) {
        (PromptProfile::Release, Some(Effort::Max)) | (PromptProfile::Revised, Some(Effort::High)) => THOROUGH,
        (PromptProfile::Revised, Some(Effort::Max)) => BEYOND,
        _ => "",
    }
}

/// A block of calls in parts, for grammars: what `calls.rs` prints.
pub(super) const CALL_SYNTAX: CallSyntax = CallSyntax {
    opening: "<｜DSML｜tool_calls>\n",
    call: ["<｜DSML｜invoke name=\"", "\">\n"],
    text: ["<｜DSML｜parameter name=\"", "\" string=\"true\">"],
    json: ["<｜DSML｜parameter name=\"", "\" string=\"false\">"],
    parameter_end: "</｜DSML｜parameter>\n",
    call_end: "</｜DSML｜invoke>\n",
    closing: "</｜DSML｜tool_calls>",
};
