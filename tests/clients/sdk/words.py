"""What the demo model was trained to answer, and how the SDKs' tests say it."""

WEATHER = {
    "name": "get_weather",
    "description": "Get the weather.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "City name"}, "day": {"type": "string"}},
        "required": ["city"],
    },
}
EMAIL = {
    "name": "send_email",
    "description": "Send an email.",
    "parameters": {
        "type": "object",
        "properties": {"recipient": {"type": "string", "description": "Who receives it"}, "title": {"type": "string"}},
        "required": ["recipient"],
    },
}
TOOLS = [WEATHER, EMAIL]

CAPITAL = ("What is the capital of Peru?", "The capital of Peru is Lima.")
ONE_CALL = "What is the weather in Paris?"
ONE_RESULT = '{"temperature": 18.5, "humidity": 60}'
ONE_ANSWER = "The temperature is 18.5 and the humidity is 60."
TWO_CALLS = "Check the weather in Oslo. After that send an email to Alice, titled lamp."
TWO_ARGUMENTS = [("get_weather", {"city": "Oslo"}), ("send_email", {"recipient": "Alice", "title": "lamp"})]

# Some nine thousand tokens, which the CPU computes for many seconds.
LONG = "The quick brown fox jumps over the lazy dog. " * 700
