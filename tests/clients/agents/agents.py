"""Four coding agents, each with a home of its own and pointed at a server of ours."""

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from server import PATIENCE

MODEL = "deepseek-v4-flash"
CONTEXT = 262144


@dataclass
class Run:
    """What one run of an agent printed, and how it ended."""

    code: int
    output: str


class Agent:
    """An installed agent. Subclasses say how it is configured and called."""

    def __init__(self, url):
        self.url = url
        self._home = tempfile.TemporaryDirectory(prefix="ds4-agent-")
        self.home = Path(self._home.name)
        self.work = self.home / "work"
        self.work.mkdir()
        self.configure()

    def close(self):
        self._home.cleanup()

    def configure(self):
        """Writes configuration below its home."""

    def environment(self):
        """Variables besides HOME and PATH."""
        return {}

    def write(self, path, text):
        path = self.home / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def start(self, prompt, resume=False):
        """Starts it with a prompt, in a process group of its own."""
        binaries = Path(os.environ["DS4_TEST_AGENTS"]) / "node_modules/.bin"
        environment = {"HOME": str(self.home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", **self.environment()}
        program, *arguments = self.command(prompt, resume)
        return subprocess.Popen(
            [binaries / program, *arguments], cwd=self.work, env=environment, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run(self, prompt, resume=False):
        """Runs it with a prompt, to its end."""
        process = self.start(prompt, resume)
        output, _ = process.communicate(timeout=PATIENCE)
        return Run(process.returncode, output)


class Codex(Agent):
    def configure(self):
        self.write(".codex/config.toml", f"""
model = "{MODEL}"
model_provider = "ds4"
model_context_window = {CONTEXT}
model_auto_compact_token_limit = 200000
[model_providers.ds4]
name = "DS4"
base_url = "{self.url}/v1"
wire_api = "responses"
stream_idle_timeout_ms = 1000000
""")

    def command(self, prompt, resume):
        follow = ["resume", "--last"] if resume else []
        return ["codex", "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
                *follow, prompt]


class ClaudeCode(Agent):
    def environment(self):
        models = ["MODEL", "DEFAULT_SONNET_MODEL", "DEFAULT_HAIKU_MODEL", "DEFAULT_OPUS_MODEL"]
        return {
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_AUTH_TOKEN": "local",
            "CLAUDE_CODE_SUBAGENT_MODEL": MODEL,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            **{f"ANTHROPIC_{name}": MODEL for name in models},
        }

    def command(self, prompt, resume):
        follow = ["-c"] if resume else []
        return ["claude", "-p", prompt, "--output-format", "json", "--allowedTools", "Bash", *follow]


class OpenCode(Agent):
    def configure(self):
        model = {"name": "DeepSeek V4 Flash", "limit": {"context": CONTEXT, "output": 65536}}
        self.write(".config/opencode/opencode.json", json.dumps({
            "$schema": "https://opencode.ai/config.json",
            "autoupdate": False,
            "share": "disabled",
            "model": f"ds4/{MODEL}",
            "small_model": f"ds4/{MODEL}",
            "provider": {"ds4": {
                "name": "ds4 (local)",
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": f"{self.url}/v1", "apiKey": "local"},
                "models": {MODEL: model},
            }},
        }))

    def environment(self):
        return {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}

    def command(self, prompt, resume):
        follow = ["-c"] if resume else []
        return ["opencode", "run", "--format", "json", "-m", f"ds4/{MODEL}", *follow, prompt]


class Pi(Agent):
    def configure(self):
        compatibility = {
            "supportsStore": False, "supportsDeveloperRole": False, "supportsReasoningEffort": True,
            "supportsUsageInStreaming": True, "maxTokensField": "max_tokens", "supportsStrictMode": False,
            "thinkingFormat": "deepseek", "requiresReasoningContentOnAssistantMessages": True,
        }
        model = {
            "id": MODEL, "name": "DeepSeek V4 Flash", "reasoning": True, "input": ["text"],
            "thinkingLevelMap": {"off": None, "minimal": "low", "low": "low", "medium": "medium", "high": "high",
                                 "xhigh": "xhigh"},
            "contextWindow": CONTEXT, "maxTokens": 65536,
            "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        }
        self.write(".pi/agent/models.json", json.dumps({"providers": {"ds4": {
            "name": "ds4 local", "baseUrl": f"{self.url}/v1", "api": "openai-completions", "apiKey": "local",
            "compat": compatibility, "models": [model],
        }}}))
        self.write(".pi/agent/settings.json", json.dumps({"defaultProvider": "ds4", "defaultModel": MODEL}))

    def environment(self):
        return {"PI_OFFLINE": "1"}

    def command(self, prompt, resume):
        follow = ["-c"] if resume else []
        return ["pi", "-p", "--mode", "json", *follow, prompt]
