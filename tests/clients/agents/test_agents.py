"""The agents, as npm installs them, against our HTTP server with a scripted model: they run tools, resume, and leave."""

import os
import re
import signal
import unittest

from agents import ClaudeCode, Codex, OpenCode, Pi
from server import Server


def counts(line):
    """Prompt and cached tokens of a log line about a finished request."""
    return tuple(int(re.search(rf"{name}=(\d+)", line).group(1)) for name in ("prompt_tokens", "cached_tokens"))


class Conversations:
    """What every agent must be able to do. `agent` says which."""

    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server("examples/scripted-server"))

    def setUp(self):
        self.client = self.agent(self.server.url)
        self.addCleanup(self.client.close)

    def ask(self, prompt, expected, resume=False):
        """Runs the agent, and returns the (prompt, cached) counts of the requests it made."""
        seen = len(self.server.lines())
        run = self.client.run(prompt, resume)
        self.assertEqual(run.code, 0, run.output)
        self.assertIn(expected, run.output)
        return [counts(line) for line in self.server.lines()[seen:] if "completed" in line]

    def test_it_prints_the_answer(self):
        self.ask("Reply with exactly: READY", "READY")

    def test_it_runs_a_tool_and_reports_its_output_and_resumes(self):
        made = self.ask("Run: echo ds4-tool-ok, then tell me its output", "The output is ds4-tool-ok.")
        # The second request of the turn repeats the first and adds the result.
        first, second = sorted(made)[-2:]
        self.assertGreaterEqual(second[1], 0.9 * first[0], made)
        resumed = self.ask("Thanks. Now say bye.", "Bye.", resume=True)
        self.assertGreaterEqual(max(cached for _, cached in resumed), 0.9 * second[0], (made, resumed))

    def test_it_runs_two_tools_of_one_answer(self):
        self.ask("Run it twice: echo first and echo ds4-tool-ok, then tell me", "The output is ds4-tool-ok.")

    def test_its_request_ends_when_it_is_killed_in_prefill(self):
        with Server("examples/scripted-server", "--step-ms", "300") as slow:
            agent = self.agent(slow.url)
            self.addCleanup(agent.close)
            process = agent.start("Reply with exactly: READY")
            slow.wait_for_line("computing a prompt")
            os.killpg(process.pid, signal.SIGTERM)
            process.communicate()
            slow.wait_for_line("canceled")


class CodexConversations(Conversations, unittest.TestCase):
    agent = Codex


class ClaudeCodeConversations(Conversations, unittest.TestCase):
    agent = ClaudeCode


class OpenCodeConversations(Conversations, unittest.TestCase):
    agent = OpenCode


class PiConversations(Conversations, unittest.TestCase):
    agent = Pi


if __name__ == "__main__":
    unittest.main()
