"""Give a model a function to call, and parse the call while the response streams.

python examples/06_tools.py model.gguf
"""

import sys

import trinity
from trinity.conversation import CallArguments, CallStart, Text

tools = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a city",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
]
messages = [{"role": "user", "content": "What is the weather in Rome?"}]

with trinity.load(sys.argv[1]) as model:
    prompt = model.chat_prompt(messages, tools=tools)
    reader = prompt.reader()
    for chunk in model.stream(prompt.ids, max_tokens=64, skip_special=prompt.skip_special):
        parts = reader.push(chunk.text)
        if chunk.finish_reason is not None:
            parts += reader.finish()
        for part in parts:
            if isinstance(part, CallStart):
                print(f"\ncall {part.id} of {part.name}: ", end="")
            elif isinstance(part, Text | CallArguments):
                print(part.text, end="", flush=True)
    print()
