"""A page of another origin streams a chat from a worker with --cors, in a real browser."""

import http.server
import json
import shutil
import subprocess
import tempfile
import threading
import unittest

from server import PATIENCE, Server

BROWSERS = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"]

PAGE = """<!doctype html><script type="module">
const report = (what) => fetch("/report", {method: "POST", body: JSON.stringify(what)});
try {
  const reply = await fetch("SERVER/v1/chat/completions", {
    method: "POST",
    headers: {"content-type": "application/json", "authorization": "Bearer secret"},
    body: JSON.stringify({
      stream: true, temperature: 0, thinking: {type: "disabled"},
      messages: [{role: "user", content: "What is the capital of Peru?"}],
    }),
  });
  const chunks = [];
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let part; !(part = await reader.read()).done;) chunks.push(part.value);
  await report({status: reply.status, id: reply.headers.get("x-request-id"), text: chunks.join(""), parts: chunks.length});
} catch (error) {
  await report({error: String(error)});
}
</script>"""


class Site(http.server.ThreadingHTTPServer):
    """The page's own origin, which also hears what the page found."""

    def __init__(self, server):
        super().__init__(("127.0.0.1", 0), Visitor)
        self.page = PAGE.replace("SERVER", server).encode()
        self.reports = []
        self.reported = threading.Event()


class Visitor(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self, body):
        self.send_response(200)
        self.send_header("content-type", "text/html; charset=utf-8")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(self.server.page)

    def do_POST(self):
        text = self.rfile.read(int(self.headers["content-length"]))
        self.server.reports.append(json.loads(text))
        self.answer(b"")
        self.server.reported.set()


def visit(server):
    """What a page of another origin finds at `server`."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise AssertionError(f"needs one of {', '.join(BROWSERS)}; on Debian: apt-get install chromium-headless-shell")
    with Site(server) as site, tempfile.TemporaryDirectory() as profile:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        process = subprocess.Popen(
            [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
             "--remote-debugging-port=0", f"http://localhost:{site.server_port}/"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            if not site.reported.wait(PATIENCE):
                raise AssertionError("the page never reported")
            return site.reports[0]
        finally:
            process.kill()
            process.wait()
            site.shutdown()


class OtherOrigin(unittest.TestCase):
    def test_a_page_streams_a_chat_where_the_operator_allows_it(self):
        with Server.demo("--cors", "--api-key", "secret") as server:
            found = visit(server.url)
        self.assertEqual(found.get("status"), 200, found)
        self.assertTrue(found["id"])
        self.assertTrue(found["text"].rstrip().endswith("data: [DONE]"), found)
        texts = [json.loads(line[6:])["choices"][0]["delta"].get("content", "")
                 for line in found["text"].splitlines() if line.startswith("data: {")]
        self.assertEqual("".join(texts), "The capital of Peru is Lima.")

    def test_a_page_learns_nothing_where_the_operator_does_not(self):
        with Server.demo() as server:
            found = visit(server.url)
        self.assertIn("error", found)


if __name__ == "__main__":
    unittest.main()
