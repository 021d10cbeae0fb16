"""JSON of a peer, read where it can also be written again."""

import json
from typing import Any

_SURELY_SHALLOW = 100
"""Brackets of a text that cannot be nested too deeply."""


def load_json(text: bytes | str) -> Any:
    """JSON of a peer; its strings can be written again, so they go into digests and files.

    A byte-order mark before it is left out: editors of some systems begin a file with one.

    Raises:
        ValueError: not JSON in UTF-8, nested too deeply, or a string with half a surrogate pair.
    """
    try:
        text = text if isinstance(text, str) else text.decode("utf-8-sig")
        found = json.loads(text)
        # Bytes in UTF-8 hold half a pair as an escape alone. What is not nested deeply when it is
        # read is not when it is written.
        if "\\u" in text or text.count("[") + text.count("{") > _SURELY_SHALLOW:
            json.dumps(found, ensure_ascii=False).encode()
        else:
            text.encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return found
