"""The openai package, as it is, against a worker with the demo model."""

import json
import signal
import subprocess
import sys
import unittest
from pathlib import Path

import openai
import pydantic

from server import Server
from words import CAPITAL, LONG, ONE_ANSWER, ONE_CALL, ONE_RESULT, TOOLS, TWO_ARGUMENTS, TWO_CALLS

MODEL = "deepseek-v4-flash"
OFF = {"thinking": {"type": "disabled"}}


def user(text):
    return {"role": "user", "content": text}


def calls(message):
    return [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls]


class WithDemoModel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server.demo())
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="local", max_retries=0)


class Chat(WithDemoModel):
    tools = [{"type": "function", "function": tool} for tool in TOOLS]

    def create(self, messages, **fields):
        return self.client.chat.completions.create(
            model=MODEL, messages=messages, temperature=0, extra_body=OFF, **fields)

    def test_an_answer_in_one_piece(self):
        question, answer = CAPITAL
        reply = self.create([user(question)])
        self.assertEqual(reply.choices[0].message.content, answer)
        self.assertEqual(reply.choices[0].finish_reason, "stop")
        self.assertEqual(reply.usage.total_tokens, reply.usage.prompt_tokens + reply.usage.completion_tokens)

    def test_a_streamed_answer_adds_up(self):
        question, answer = CAPITAL
        chunks = list(self.create([user(question)], stream=True, stream_options={"include_usage": True}))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        self.assertEqual(text, answer)
        self.assertGreater(chunks[-1].usage.completion_tokens, 0)

    def test_one_call_its_result_and_the_answer(self):
        messages = [{"role": "system", "content": "You are a helpful assistant."}, user(ONE_CALL)]
        tools = [*self.tools[:1], {"type": "function", "function": ALARM}, self.tools[1]]
        message = self.create(messages, tools=tools).choices[0].message
        self.assertEqual(calls(message), [("get_weather", {"city": "Paris"})])
        call = message.tool_calls[0]
        messages += [message, {"role": "tool", "tool_call_id": call.id, "content": ONE_RESULT}]
        reply = self.create(messages, tools=tools)
        self.assertEqual(reply.choices[0].message.content, ONE_ANSWER)

    def test_two_calls_streamed_are_the_two_calls(self):
        message = self.create([user(TWO_CALLS)], tools=self.tools).choices[0].message
        self.assertEqual(calls(message), TWO_ARGUMENTS)
        with self.client.chat.completions.stream(
            model=MODEL, messages=[user(TWO_CALLS)], temperature=0, extra_body=OFF, tools=self.tools) as stream:
            streamed = stream.get_final_completion().choices[0]
        self.assertEqual(calls(streamed.message), TWO_ARGUMENTS)
        self.assertEqual(streamed.finish_reason, "tool_calls")
        self.assertEqual(len({call.id for call in streamed.message.tool_calls}), 2)

    def test_a_resumed_conversation_computes_only_what_is_new(self):
        messages = [user("Hello, my name is Clara. " + LONG[:900])]
        first = self.create(messages)
        messages += [first.choices[0].message, user("Thanks. Now say bye.")]
        second = self.create(messages)
        cached = second.usage.prompt_tokens_details.cached_tokens
        self.assertGreaterEqual(cached, 0.9 * first.usage.prompt_tokens)

    def test_errors_have_the_types_that_programs_catch(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.create([user("Hi")], extra_query={}, top_p=7)
        self.assertEqual((caught.exception.param, caught.exception.type), ("top_p", "invalid_request_error"))
        with self.assertRaises(openai.BadRequestError) as caught:
            self.create([user("word " * 40_000)])
        self.assertEqual(caught.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("gpt-4")

    def test_an_answer_is_parsed_into_the_class_that_was_asked_for(self):
        class City(pydantic.BaseModel):
            name: str = pydantic.Field(max_length=20)
            is_capital: bool

        reply = self.client.chat.completions.parse(
            model=MODEL, messages=[user(CAPITAL[0])], temperature=0, extra_body=OFF, response_format=City)
        # What the model would say is no JSON: that it is, is the server's doing.
        self.assertIsInstance(reply.choices[0].message.parsed, City)

    def test_log_probabilities_are_those_of_the_answer(self):
        reply = self.create([user(CAPITAL[0])], logprobs=True, top_logprobs=2)
        content = reply.choices[0].logprobs.content
        self.assertEqual("".join(entry.token for entry in content), CAPITAL[1])
        self.assertTrue(all(entry.logprob == entry.top_logprobs[0].logprob for entry in content), "greedy")

    def test_the_model_is_listed(self):
        self.assertIn("ds4-demo-16m", [model.id for model in self.client.models.list()])


ALARM = {
    "name": "create_alarm",
    "description": "Create an alarm.",
    "parameters": {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "minutes": {"type": "integer", "description": "Duration in minutes"},
            "urgent": {"type": "boolean"},
        },
        "required": ["title", "minutes"],
    },
}


class Responses(WithDemoModel):
    tools = [{"type": "function", "strict": False, **tool} for tool in TOOLS]

    def create(self, items, **fields):
        return self.client.responses.create(model=MODEL, input=items, temperature=0, reasoning={"effort": "none"}, **fields)

    def test_an_answer_in_one_piece_and_streamed(self):
        question, answer = CAPITAL
        self.assertEqual(self.create(question).output_text, answer)
        with self.client.responses.stream(
            model=MODEL, input=question, temperature=0, reasoning={"effort": "none"}) as stream:
            self.assertEqual(stream.get_final_response().output_text, answer)

    def test_two_calls_their_results_and_a_prompt_that_only_grows(self):
        items = [user(TWO_CALLS)]
        first = self.create(items, tools=self.tools)
        made = [item for item in first.output if item.type == "function_call"]
        self.assertEqual([(call.name, json.loads(call.arguments)) for call in made], TWO_ARGUMENTS)
        items += first.output
        items += [{"type": "function_call_output", "call_id": call.call_id, "output": "done"} for call in made]
        second = self.create(items, tools=self.tools)
        self.assertEqual(second.status, "completed")
        cached = second.usage.input_tokens_details.cached_tokens
        self.assertGreaterEqual(cached, 0.9 * first.usage.input_tokens)


class Completions(WithDemoModel):
    def test_a_raw_prompt_goes_on(self):
        reply = self.client.completions.create(model=MODEL, prompt="The", max_tokens=5, temperature=0)
        self.assertEqual(reply.choices[0].finish_reason, "length")
        self.assertEqual(reply.usage.completion_tokens, 5)

    def test_a_prompt_is_repeated_with_its_log_probabilities_as_text_and_as_tokens(self):
        text = "The capital of Peru is"
        tokens = self.client.post(
            self.server.url + "/tokenize", body={"prompt": text, "add_special_tokens": False}, cast_to=object)["tokens"]
        for prompt in [text, tokens]:
            choice = self.client.completions.create(
                model=MODEL, prompt=prompt, max_tokens=1, temperature=0, echo=True, logprobs=1).choices[0]
            self.assertTrue(choice.text.startswith(text), choice.text)
            self.assertEqual(len(choice.logprobs.token_logprobs), len(tokens) + 1)
            self.assertEqual("".join(choice.logprobs.tokens[: len(tokens)]), text)


class Departure(WithDemoModel):
    def test_a_client_killed_in_prefill_stops_costing_and_leaves_its_prefix(self):
        seen = len(self.server.lines())
        child = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("one_long_request.py"), self.server.url],
            stdout=subprocess.PIPE, text=True)
        # The first chunk, the role, is sent when computing begins.
        self.assertEqual(child.stdout.readline().strip(), "begun")
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        self.server.wait_for_line("canceled", after=seen)
        reply = self.client.chat.completions.create(
            model=MODEL, messages=[user(CAPITAL[0])], temperature=0, extra_body=OFF)
        self.assertEqual(reply.choices[0].message.content, CAPITAL[1])


if __name__ == "__main__":
    unittest.main()
