"""check_tool_calls.py parses what templates write, also those that take one call per message."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzzing.compare_templates import called, plain_compiler, said

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.full
SCRIPT = ROOT / "tests" / "fuzzing" / "check_tool_calls.py"
# As those of Llama 3.1 to 3.3.
LLAMA = """{% if tools %}{{ tools | tojson }}{% endif %}{% for message in messages -%}
{% if message.tool_calls %}{% if not message.tool_calls|length == 1 -%}
{{ raise_exception("This model only supports single tool-calls at once!") }}{% endif -%}
{% set call = message.tool_calls[0].function -%}
<|start_header_id|>assistant<|end_header_id|>
{{ '{"name": "' + call.name + '", "parameters": ' }}{{ call.arguments | tojson }}}<|eot_id|>
{%- elif message.role == 'tool' -%}
<|start_header_id|>ipython<|end_header_id|>
{{ message.content }}<|eot_id|>
{%- else -%}
<|start_header_id|>{{ message.role }}<|end_header_id|>
{{ message.content }}<|eot_id|>
{%- endif %}{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>
{% endif %}"""


def checked(folder: Path, template: str) -> subprocess.CompletedProcess[str]:
    (folder / "one.jinja").write_text(template, encoding="utf-8")
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(folder)], cwd=ROOT, capture_output=True, text=True
    )


def test_a_template_of_one_call_per_message(tmp_path: Path) -> None:
    two = said("assistant", "", tool_calls=[called("f", {}), called("g", {})])
    with pytest.raises(ValueError, match="only supports single tool-calls"):
        plain_compiler(LLAMA).render(messages=[two])
    ran = checked(tmp_path, LLAMA)
    assert "'the same': 2" in ran.stdout, ran
    assert "CALLS" not in ran.stdout
    assert ran.returncode == 0


def test_a_template_without_calls(tmp_path: Path) -> None:
    plain = "{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}"
    ran = checked(tmp_path, plain + "{% if add_generation_prompt %}<assistant>{% endif %}")
    assert "CALLS" not in ran.stdout, ran
    assert ran.returncode == 0


def test_lost_calls_are_seen(tmp_path: Path) -> None:
    other = LLAMA.replace("call.name", "'other_' + call.name")
    ran = checked(tmp_path, other)
    assert "NO CALLS" in ran.stdout
    assert ran.returncode == 1
