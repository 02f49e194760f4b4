"""Real servers as child processes, for clients to talk to."""

import os
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
DEMO_MODEL = REPOSITORY / "scripts/demo-model/ds4-demo-16m.gguf"

# How long a wait may take before a test is given up as hung; never part of what a test proves.
PATIENCE = 120


class Server:
    """A program of ours on a free loopback port. It ends with its `with` block."""

    def __init__(self, program, *arguments):
        # The folder that `run` built the programs into.
        path = Path(os.environ["DS4_TEST_BINARIES"]) / program
        environment = {key: value for key, value in os.environ.items() if not key.startswith("DS4_")}
        self._process = subprocess.Popen(
            [path, "--port", "0", *map(str, arguments)],
            env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._lines = []
        self._changed = threading.Condition()
        self._follower = threading.Thread(target=self._follow, daemon=True)
        self._follower.start()
        line = self.wait_for_line(r"listening on (http://\S+)")
        self.url = re.search(r"http://[0-9.:]+", line).group()
        self._wait_until_healthy()

    @classmethod
    def demo(cls, *arguments):
        """The worker with the demo model, which computes on the CPU."""
        return cls("ds4-server", "-m", DEMO_MODEL, *arguments)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        self._follower.join()
        self._process.stdout.close()

    def _follow(self):
        for line in self._process.stdout:
            with self._changed:
                self._lines.append(line.rstrip())
                self._changed.notify_all()
        with self._changed:
            self._lines.append("(ended)")
            self._changed.notify_all()

    def lines(self):
        """What it has logged so far."""
        with self._changed:
            return list(self._lines)

    def wait_for_line(self, pattern, after=0):
        """The first line from number `after` on that matches; waits for it."""
        deadline = time.monotonic() + PATIENCE
        with self._changed:
            while True:
                found = next((line for line in self._lines[after:] if re.search(pattern, line)), None)
                if found:
                    return found
                if "(ended)" in self._lines or time.monotonic() > deadline:
                    raise AssertionError(f"the server never said {pattern!r}:\n" + "\n".join(self._lines))
                self._changed.wait(1)

    def _wait_until_healthy(self):
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=PATIENCE) as reply:
                    if reply.status == 200:
                        return
            except urllib.error.HTTPError as error:
                if error.code != 503:
                    raise
            time.sleep(0.01)
        raise AssertionError("the server never became healthy:\n" + "\n".join(self.lines()))
