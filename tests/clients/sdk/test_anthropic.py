"""The anthropic package, as it is, against a worker with the demo model."""

import unittest

import anthropic

from server import Server
from words import CAPITAL, LONG, ONE_ANSWER, ONE_CALL, ONE_RESULT, TOOLS, TWO_ARGUMENTS, TWO_CALLS
from test_openai import ALARM

MODEL = "deepseek-v4-flash"


def tool(schema):
    return {"name": schema["name"], "description": schema["description"], "input_schema": schema["parameters"]}


def user(content):
    return {"role": "user", "content": content}


class Messages(unittest.TestCase):
    tools = [tool(schema) for schema in TOOLS]

    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server.demo())
        cls.client = anthropic.Anthropic(base_url=cls.server.url, api_key="local", max_retries=0)

    def create(self, messages, **fields):
        return self.client.messages.create(
            model=MODEL, max_tokens=200, messages=messages, extra_body={"temperature": 0}, **fields)

    def test_an_answer_in_one_piece_and_streamed(self):
        question, answer = CAPITAL
        reply = self.create([user(question)])
        self.assertEqual((reply.content[0].text, reply.stop_reason), (answer, "end_turn"))
        with self.client.messages.stream(
            model=MODEL, max_tokens=200, messages=[user(question)], extra_body={"temperature": 0}) as stream:
            self.assertEqual("".join(stream.text_stream), answer)

    def test_thinking_comes_in_a_signed_block_of_its_own(self):
        reply = self.create([user("What is 3 plus 4?")], thinking={"type": "enabled", "budget_tokens": 1024})
        self.assertEqual([block.type for block in reply.content], ["thinking", "text"])
        self.assertTrue(reply.content[0].thinking and reply.content[0].signature)

    def test_one_call_its_result_and_the_answer(self):
        tools = [self.tools[0], tool(ALARM), self.tools[1]]
        messages = [user(ONE_CALL)]
        first = self.create(messages, tools=tools, system="You are a helpful assistant.")
        self.assertEqual(first.stop_reason, "tool_use")
        call = first.content[-1]
        self.assertEqual((call.name, call.input), ("get_weather", {"city": "Paris"}))
        result = {"type": "tool_result", "tool_use_id": call.id, "content": ONE_RESULT}
        messages += [{"role": "assistant", "content": first.content}, user([result])]
        second = self.create(messages, tools=tools, system="You are a helpful assistant.")
        self.assertEqual(second.content[0].text, ONE_ANSWER)

    def test_two_calls_streamed(self):
        with self.client.messages.stream(
            model=MODEL, max_tokens=200, messages=[user(TWO_CALLS)], tools=self.tools,
            extra_body={"temperature": 0}) as stream:
            message = stream.get_final_message()
        made = [(block.name, block.input) for block in message.content if block.type == "tool_use"]
        self.assertEqual(made, TWO_ARGUMENTS)

    def test_counted_tokens_are_those_that_the_call_is_billed_for(self):
        for fields in [{}, {"tools": self.tools}, {"system": "You are a helpful assistant."}]:
            messages = [user(CAPITAL[0])]
            counted = self.client.messages.count_tokens(model=MODEL, messages=messages, **fields).input_tokens
            usage = self.create(messages, **fields).usage
            spent = usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens
            self.assertEqual(counted, spent, fields)

    def test_a_resumed_conversation_computes_only_what_is_new(self):
        messages = [user("Hello, my name is Clara. " + LONG[:900])]
        first = self.create(messages)
        spent = first.usage.input_tokens + first.usage.cache_read_input_tokens + first.usage.cache_creation_input_tokens
        messages += [{"role": "assistant", "content": first.content}, user("Thanks. Now say bye.")]
        second = self.create(messages)
        self.assertGreaterEqual(second.usage.cache_read_input_tokens, 0.9 * spent)

    def test_a_prompt_too_long_says_so_in_the_words_that_clients_look_for(self):
        with self.assertRaisesRegex(anthropic.BadRequestError, r"prompt is too long: \d+ tokens > \d+ maximum"):
            self.create([user("word " * 40_000)])


if __name__ == "__main__":
    unittest.main()
