"""The program of the answers' sandbox: `python -I -m bot.chat.rendering_worker`.

A request is JSON with the answer and the notices above it. The reply is a JSON list of messages.
Each has a text and a list of styles, and each style a start, a length and a name. A request with
`to_speak` instead of notices has the words of the answer as its reply.
"""

import json
from typing import Final

from bot.signal.formatting import rendered
from bot.signal.spoken_words import spoken_words
from tools.sandbox.child import serve

SAMPLE: Final = (
    "# *a*\n\n> **b** `c` [d](https://a.b) ![e](f) ||g|| ~~h~~ &amp; \\* <https://a.b>\n\n"
    "1. [x] i\n   - j  \n\n| k | l |\n|:-:|--:|\n| m | n |\n\n---\n"
    "```py\no\n```\n    p\n\n$q$ 👍🏽。"
)
"""A little of everything that is rendered."""


def answer(request: str) -> str:
    """Return the messages of an answer, or the words to speak."""
    fields = json.loads(request)
    if "to_speak" in fields:
        return json.dumps(spoken_words(fields["to_speak"]), ensure_ascii=False)
    messages = (
        (part.text, [(style.start, style.length, style.style) for style in part.styles])
        for part in rendered(fields["answer"], fields["notices"])
    )
    return json.dumps([*messages], ensure_ascii=False, separators=(",", ":"))


if __name__ == "__main__":
    spoken_words(SAMPLE)
    rendered(SAMPLE, (SAMPLE,))  # so that nothing is loaded from disk later
    serve(answer)
