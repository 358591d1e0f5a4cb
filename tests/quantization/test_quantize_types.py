"""The type of each tensor equals the choice of llama.cpp's quantizer.

tests/goldens/quantize_goldens.py makes tests/data/quantize_types.json.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from trinity.errors import InputError, UnsupportedError
from trinity.quantization.assignment import (
    Assigned,
    ModelTensor,
    Network,
    Overrides,
    assign,
    is_quantized,
)
from trinity.quantization.mixes import (
    ALIASES,
    MIXES,
    PLAIN,
    TENSOR_TYPES,
    find_mix,
    find_tensor_type,
)
from trinity_kernels.quantizers import WRITABLE

GOLDENS = json.loads(
    (Path(__file__).resolve().parents[1] / "data" / "quantize_types.json").read_text("utf-8")
)
LAYER = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
GROUPS = {(case["shape"], case["variant"]): [] for case in GOLDENS["cases"]}
for _case in GOLDENS["cases"]:
    GROUPS[_case["shape"], _case["variant"]].append(_case)


def entries(shape: dict[str, Any], rows: int = 16) -> list[ModelTensor]:
    """Return a model of that shape in F16, in a converter's order."""
    hidden, ffn = shape["hidden"], shape["ffn"]
    made = [ModelTensor("token_embd.weight", (rows, hidden), "F16")]
    for layer in range(shape["layers"]):
        prefix = f"blk.{layer}."
        made.append(ModelTensor(f"{prefix}attn_norm.weight", (hidden,), "F32"))
        experts = shape["experts"]
        if experts:
            made.append(ModelTensor(f"{prefix}ffn_gate_inp.weight", (experts, hidden), "F32"))
        for name in LAYER:
            sizes: tuple[int, ...] = rows, ffn if name == "ffn_down" else hidden
            if experts and name.startswith("ffn"):
                name, sizes = f"{name}_exps", (experts, *sizes)
            made.append(ModelTensor(f"{prefix}{name}.weight", sizes, "F16"))
        made.append(ModelTensor(f"{prefix}attn_q.bias", (hidden,), "F32"))
    made.append(ModelTensor("output_norm.weight", (hidden,), "F32"))
    if not shape["tied"]:
        made.append(ModelTensor("output.weight", (rows, hidden), "F16"))
    return made


def network(shape: dict[str, Any]) -> Network:
    sizes = shape["layers"], shape["heads"], shape["kv_heads"], shape["experts"]
    return Network(shape["arch"], *sizes)


def overrides(options: dict[str, Any]) -> Overrides:
    return Overrides(
        options.get("output"),
        options.get("embedding"),
        tuple((re.compile(p), t.upper()) for p, t in options.get("patterns", ())),
        options.get("pure", False),
    )


def types(assigned: list[Assigned]) -> dict[str, str]:
    return {a.entry.name: a.type for a in assigned}


def expected(case: dict[str, Any], names: list[str]) -> dict[str, str]:
    """Return types by name from the golden's short form."""
    wanted = dict.fromkeys(names, case["most"])
    for kind, groups in case["others"].items():
        for tensor, layers in groups.items():
            if not layers:
                wanted[f"{tensor}.weight"] = kind
            for part in filter(None, layers.split(",")):
                first, _, last = part.partition("-")
                for layer in range(int(first), int(last or first) + 1):
                    wanted[f"blk.{layer}.{tensor}.weight"] = kind
    return wanted


@pytest.mark.few(12)
@pytest.mark.parametrize(("shape_name", "variant"), GROUPS)
def test_types_are_llama_cpps(shape_name: str, variant: str) -> None:
    shape = GOLDENS["shapes"][shape_name]
    options = GOLDENS["variants"].get(variant, {})
    model = entries(shape)
    compared = 0
    for case in GROUPS[shape_name, variant]:
        mix = find_mix(case["mix"])
        # llama.cpp ignores what the user asked for when the rest is F16, BF16 or F32, and fails
        # where a type that was asked for does not fit the rows.
        is_ignored = variant in ("patterns", "output") and mix.base in PLAIN
        if case.get("refused") or is_ignored:
            continue
        assigned = assign(
            model,
            mix,
            network(shape),
            overrides(options),
            has_imatrix=options.get("imatrix", False),
        )
        made = types(assigned)
        matrices = [entry.name for entry in model if is_quantized(entry)]
        assert {name: made[name] for name in matrices} == expected(case, matrices), mix.name
        others = {e.name: e.type for e in model if not is_quantized(e)}
        assert {name: made[name] for name in others} == others
        assert case["file_type"] == mix.file_type
        compared += 1
    assert compared


def test_every_mix_of_llama_cpp_is_there() -> None:
    assert {case["mix"] for case in GOLDENS["cases"]} | {"I2_S"} == set(MIXES)


def test_every_assigned_type_can_be_written() -> None:
    shape = GOLDENS["shapes"]["tinyllama-1b"]
    for mix in MIXES.values():
        for has_imatrix in (False, True):
            assigned = assign(
                entries(shape), mix, network(shape), Overrides(), has_imatrix=has_imatrix
            )
            assert set(types(assigned).values()) <= {*WRITABLE, *PLAIN, "I2_S"}
    assert set(TENSOR_TYPES) <= {*WRITABLE, "I2_S"}
    assert {mix.base for mix in MIXES.values()} <= set(TENSOR_TYPES)


def test_the_order_is_llama_cpps() -> None:
    """Tensors without a layer come first, then by layer number and by name."""
    shape = GOLDENS["shapes"]["bitnet-2b"]
    names = [
        a.entry.name for a in assign(entries(shape), MIXES["Q8_0"], network(shape), Overrides())
    ]
    assert names[:3] == ["output_norm.weight", "token_embd.weight", "blk.0.attn_k.weight"]
    layers = [int(name.split(".")[1]) for name in names[2:] if name.startswith("blk.")]
    assert layers == sorted(layers)
    assert names[-1] == "blk.29.ffn_up.weight"


def test_what_does_not_fit_is_told() -> None:
    shape = GOLDENS["shapes"]["rows-of-288"]
    assigned = assign(entries(shape), MIXES["Q4_K_M"], network(shape), Overrides())
    misfits = {a.entry.name: (a.misfit, a.type) for a in assigned if a.misfit}
    assert misfits["blk.0.attn_q.weight"] == ("Q4_K", "Q5_0")
    assert "blk.0.ffn_down.weight" not in misfits


def test_patterns_count_where_the_rest_is_f16() -> None:
    shape = GOLDENS["shapes"]["llama-7b"]
    wanted = Overrides(patterns=((re.compile("attn_v"), "Q8_0"),))
    made = types(assign(entries(shape), MIXES["F16"], network(shape), wanted))
    assert made["blk.3.attn_v.weight"] == "Q8_0"
    assert made["blk.3.attn_q.weight"] == "F16"


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("mix", ["F16", "Q4_K_M"])
def test_the_output_type_counts_for_a_tied_embedding(mix: str, pure: bool) -> None:
    shape = GOLDENS["shapes"]["llama3.2-1b"]
    made = types(
        assign(entries(shape), MIXES[mix], network(shape), Overrides(output="Q8_0", pure=pure))
    )
    assert made["token_embd.weight"] == "Q8_0"


@pytest.mark.parametrize("pattern", ["attn_x", "attn_norm", r"blk\.99\."])
def test_a_pattern_without_a_tensor_is_refused(pattern: str) -> None:
    shape = GOLDENS["shapes"]["llama-7b"]
    wanted = Overrides(patterns=((re.compile(pattern), "Q8_0"),))
    with pytest.raises(InputError, match="no quantized tensor has a matching name"):
        assign(entries(shape), MIXES["Q4_0"], network(shape), wanted)


def test_i2_s_is_for_the_layers() -> None:
    shape = GOLDENS["shapes"]["bitnet-2b"]
    made = types(assign(entries(shape), MIXES["I2_S"], network(shape), Overrides()))
    assert made["token_embd.weight"] == "F16"
    assert {made[f"blk.7.{name}.weight"] for name in LAYER} == {"I2_S"}
    with pytest.raises(UnsupportedError, match="multiple of 128 weights"):
        assign(entries(shape | {"hidden": 36}), MIXES["I2_S"], network(shape), Overrides())


def test_mxfp4_is_for_the_layers() -> None:
    """llama.cpp uses MXFP4 for experts only; other tensors of its file are Q8_0."""
    shape = GOLDENS["shapes"]["llama-7b"]
    made = types(assign(entries(shape), MIXES["MXFP4"], network(shape), Overrides()))
    assert made["output.weight"] == made["token_embd.weight"] == "Q8_0"
    assert {made[f"blk.7.{name}.weight"] for name in LAYER} == {"MXFP4"}


def test_names_of_mixes() -> None:
    assert find_mix("q4_k").name == "Q4_K_M"
    assert find_mix("iq4_NL").name == "IQ4_NL"
    assert all(name in MIXES for name in ALIASES.values())
    with pytest.raises(InputError, match=r"type is 'q4_k_x'; .* Did you mean Q4_K"):
        find_mix("q4_k_x")
    with pytest.raises(InputError, match="it must be one of BF16, F16"):
        find_mix("zzz")


def test_names_of_types() -> None:
    assert find_tensor_type("q6_k", "--output-tensor-type") == "Q6_K"
    with pytest.raises(InputError, match=r"--tensor-type x: Q4_K_M is a mix .*; use Q4_K"):
        find_tensor_type("q4_k_m", "--tensor-type x")
    with pytest.raises(InputError, match="--tensor-type x is 'Q9'"):
        find_tensor_type("Q9", "--tensor-type x")
