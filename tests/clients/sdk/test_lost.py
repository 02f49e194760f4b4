"""What the packages do when a turn that they go on from is not there any more: they believe the server, and ask once."""

import http.server
import threading
import unittest
import urllib.error
import urllib.request

import anthropic
import openai

from server import Server

TOOL = {"type": "object", "properties": {"city": {"type": "string"}}}


class Counting(http.server.BaseHTTPRequestHandler):
    """Passes requests on to a worker, and counts them."""

    def do_POST(self):
        self.server.seen += 1
        body = self.rfile.read(int(self.headers["content-length"]))
        request = urllib.request.Request(self.server.worker + self.path, body, {"content-type": "application/json"})
        try:
            reply = urllib.request.urlopen(request)
        except urllib.error.HTTPError as error:
            reply = error
        with reply:
            text = reply.read()
            self.send_response(reply.status)
            for name in ["content-type", "x-should-retry", "retry-after"]:
                if reply.headers[name]:
                    self.send_header(name, reply.headers[name])
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    def log_message(self, *_):
        pass


class LostContinuations(unittest.TestCase):
    """Only one turn is kept, so that another one makes a conversation lose its own."""

    @classmethod
    def setUpClass(cls):
        worker = cls.enterClassContext(Server.demo("--cont-registry-max", "1", "--cont-grace-s", "0"))
        cls.proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Counting)
        cls.proxy.worker, cls.proxy.seen = worker.url, 0
        threading.Thread(target=cls.proxy.serve_forever, daemon=True).start()
        cls.addClassCleanup(cls.proxy.server_close)
        cls.addClassCleanup(cls.proxy.shutdown)
        cls.url = f"http://127.0.0.1:{cls.proxy.server_port}"

    def assert_asked_once(self, conflict, ask):
        self.proxy.seen = 0
        with self.assertRaises(conflict):
            ask()
        self.assertEqual(self.proxy.seen, 1)

    def test_a_lost_continuation_is_asked_for_once(self):
        client = openai.OpenAI(base_url=self.url + "/v1", api_key="local", max_retries=2)
        tools = [{"type": "function", "name": "get_weather", "parameters": TOOL}]

        def call():
            reply = client.responses.create(
                model="m", input="Weather?", tools=tools, tool_choice="required", reasoning={"effort": "none"},
                temperature=0, max_output_tokens=200)
            return next(item.call_id for item in reply.output if item.type == "function_call")

        lost = call()
        call()
        result = {"type": "function_call_output", "call_id": lost, "output": "sunny"}
        self.assert_asked_once(openai.ConflictError, lambda: client.responses.create(model="m", input=[result]))

    def test_a_lost_continuation_of_messages_is_asked_for_once(self):
        client = anthropic.Anthropic(base_url=self.url, api_key="local", max_retries=2)
        tools = [{"name": "get_weather", "input_schema": TOOL}]

        def call():
            reply = client.messages.create(
                model="m", max_tokens=200, tools=tools, tool_choice={"type": "any"},
                messages=[{"role": "user", "content": "Weather?"}])
            return next(block.id for block in reply.content if block.type == "tool_use")

        lost = call()
        call()
        result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": lost, "content": "sunny"}]}
        self.assert_asked_once(
            anthropic.ConflictError, lambda: client.messages.create(model="m", max_tokens=50, messages=[result]))


if __name__ == "__main__":
    unittest.main()
