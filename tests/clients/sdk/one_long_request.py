"""A client that waits for the answer to a long prompt. Says "begun" once the server has begun to compute."""

import sys

import openai

from words import LONG

client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="local", max_retries=0)
stream = client.chat.completions.create(
    model="any", messages=[{"role": "user", "content": LONG}], stream=True,
    extra_body={"thinking": {"type": "disabled"}})
for number, chunk in enumerate(stream):
    if number == 0:
        print("begun", flush=True)
