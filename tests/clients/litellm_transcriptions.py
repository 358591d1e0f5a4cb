"""LiteLLM's transcriptions by its OpenAI provider."""

# packages: litellm==1.110.2

from __future__ import annotations

from pathlib import Path

import litellm
from rows import SPEECH, URL, main, row

litellm.suppress_debug_info = True
CLIP = Path(__file__).parents[1] / "data" / "real" / "spoken" / "en2.opus"


@row("transcription openai/whisper")
def _() -> None:
    with CLIP.open("rb") as file:
        found = litellm.transcription(
            model=f"openai/{SPEECH}", file=file, api_base=f"{URL}/v1", api_key="none"
        )
    assert "leave your coat by the door" in found.text


if __name__ == "__main__":
    main()
