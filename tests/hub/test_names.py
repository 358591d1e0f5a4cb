"""Names on the hub, and the files of a repository that they select."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trinity.errors import FormatError, InputError, TrinityError
from trinity.hub.choice import choose, gguf_models, shown, tower_of
from trinity.hub.name import HubName, parse_name

FILES = [
    "README.md", "config.json", "mmproj-model-F16.gguf", "imatrix.gguf", "m.Q8_0.gguf",
    "m-Q4_K.gguf", "m-Q4_K_M.gguf", "m-q4_k_s.gguf", "m-UD-Q4_K_XL.gguf", "m-IQ4_NL.gguf",
    "Q6_K/m-00001-of-00002.gguf", "Q6_K/m-00002-of-00002.gguf", "m-BF16.gguf", "m-UD-IQ2_M.gguf",
    "m-IQ2_M.gguf", "m-IQ4_XS.GGUF",
]  # fmt: skip


def chosen(wanted: str | None, files: list[str]) -> tuple[str, ...]:
    return choose(HubName("hf:u/r", "u/r", "main", wanted), files)[0].files


@pytest.mark.parametrize(
    ("typed", "repository", "revision", "wanted"),
    [
        ("hf:u/r", "u/r", "main", None),
        ("u/r", "u/r", "main", None),
        ("hf:u/r:Q4_K_M", "u/r", "main", "Q4_K_M"),
        ("hf:u/r@v1.0", "u/r", "v1.0", None),
        ("hf:u.s-e_r/Re.po-1B@refs/pr/3:a b/m@x:y.gguf", "u.s-e_r/Re.po-1B", "refs/pr/3",
         "a b/m@x:y.gguf"),
    ],
)  # fmt: skip
def test_names(typed: str, repository: str, revision: str, wanted: str | None) -> None:
    found = parse_name(typed)
    assert (found.repository, found.revision, found.wanted) == (repository, revision, wanted)
    assert parse_name(found.of_file(wanted)) == parse_name(f"hf:{typed.removeprefix('hf:')}")


@pytest.mark.parametrize(
    "typed",
    ["hf:", "hf:u", "hf:u/r/f.gguf", "hf:../r", "hf:u/..", "hf:u/a--b", "hf:u/r@", "hf:u/r@a/../b",
     "hf:u/r@/x", "hf:u/r:", "hf:u/r:a\nb", "hf:u/" + "r" * 97, "hf:https://hub/u/r", "hf:u/.r",
     "hf:u/r@a\0", "hf:ü/r", "hf:u/r@-x"],
)  # fmt: skip
def test_what_is_no_name(typed: str) -> None:
    with pytest.raises(InputError, match=r"expected hf:USER/REPO") as info:
        parse_name(typed)
    assert str(info.value).startswith(f"{typed}: ")


@settings(deadline=None)
@given(st.text("hf:/@.-_aZ0+ \n\0ü", max_size=40).map("hf:u/r".__add__) | st.text("hf:/.u"))
def test_any_text_is_a_name_or_refused(text: str) -> None:
    with suppress(TrinityError):
        found = parse_name(text)
        assert ".." not in found.repository + found.revision
        assert found.repository.count("/") == 1


@pytest.mark.parametrize(
    ("wanted", "file"),
    [
        (None, "m-Q4_K_M.gguf"),
        ("Q4_K_M", "m-Q4_K_M.gguf"),
        ("q4-k.m", "m-Q4_K_M.gguf"),
        ("Q4_K", "m-Q4_K.gguf"),
        ("Q4_K_S", "m-q4_k_s.gguf"),
        ("Q4_K_XL", "m-UD-Q4_K_XL.gguf"),
        ("UD-Q4_K_XL", "m-UD-Q4_K_XL.gguf"),
        ("IQ2_M", "m-IQ2_M.gguf"),
        ("UD-IQ2_M", "m-UD-IQ2_M.gguf"),
        ("bf16", "m-BF16.gguf"),
        ("iq4_xs", "m-IQ4_XS.GGUF"),
        ("m.Q8_0.gguf", "m.Q8_0.gguf"),
        ("Q8_0", "m.Q8_0.gguf"),
    ],
)
def test_choice(wanted: str | None, file: str) -> None:
    assert chosen(wanted, FILES) == (file,)


@pytest.mark.parametrize("wanted", ["Q6_K", "q6_k", "Q6_K/m-00002-of-00002.gguf"])
def test_parts_together(wanted: str) -> None:
    assert chosen(wanted, FILES) == ("Q6_K/m-00001-of-00002.gguf", "Q6_K/m-00002-of-00002.gguf")


@pytest.mark.parametrize("wanted", ["Q4", "K_M", "IQ4", "Q3_K_M", "Q4_K_M_L", "F16", "m-q8_0.gguf"])
def test_unknown_quantization_lists_what_there_is(wanted: str) -> None:
    with pytest.raises(InputError, match=f"there is no '{wanted}'; there is: ") as info:
        chosen(wanted, FILES)
    for known in ("Q6_K", "Q8_0", "Q4_K", "Q4_K_M", "IQ4_XS"):
        assert known in str(info.value)
    assert "mmproj" not in str(info.value)


@pytest.mark.parametrize(
    ("files", "file"),
    [
        (["a.gguf"], "a.gguf"),
        (["m-Q3_K.gguf", "m-Q8_0.gguf", "m-F16.gguf"], "m-Q8_0.gguf"),
        (["m-F16.gguf", "m-Q3_K.gguf"], "m-F16.gguf"),
        (["m-Q4_K_M.gguf", "MMPROJ-m-Q4_K_M.gguf", "m-mmproj-Q4_K_M.gguf"], "m-Q4_K_M.gguf"),
        (["a/m-00001-of-00001.gguf", "mtp-m-Q4_K_M.gguf"], "a/m-00001-of-00001.gguf"),
    ],
)
def test_without_a_quantization(files: list[str], file: str) -> None:
    assert chosen(None, files) == (file,)


@pytest.mark.parametrize(
    ("files", "tower"),
    [
        (["m.gguf"], None),
        (
            ["m.gguf", "mmproj-m-BF16.gguf", "mmproj-m-F16.gguf", "mmproj-m-Q8_0.gguf"],
            "mmproj-m-F16.gguf",
        ),
        (["m.gguf", "a/m-mmproj-BF16.gguf", "mmproj/readme.md"], "a/m-mmproj-BF16.gguf"),
    ],
)
def test_vision_tower_of_a_repository(files: list[str], tower: str | None) -> None:
    assert tower_of(files) == tower


def test_several_that_fit_are_listed() -> None:
    files = ["a-1b-Q4_K_M.gguf", "a-3b-Q4_K_M.gguf"]
    for wanted in (None, "Q4_K_M"):
        with pytest.raises(InputError, match=r"several files fit: a-1b-Q4_K_M\.gguf, a-3b-Q4"):
            chosen(wanted, files)
    assert chosen("3b-Q4_K_M", files) == (files[1],)
    assert shown(gguf_models(files)) == ", ".join(files)


def test_missing_parts_are_named() -> None:
    with pytest.raises(FormatError, match=r"m-00002-of-00003\.gguf"):
        chosen(None, ["m-00001-of-00003.gguf", "m-00003-of-00003.gguf"])


def test_what_goes_beside_a_model_is_none() -> None:
    with pytest.raises(InputError, match="belongs to a model but is not one; there is: "):
        chosen("mmproj-model-F16.gguf", FILES)


@pytest.mark.full
@settings(deadline=None)
@given(
    st.lists(st.from_regex(r"[a-z/.0-9QK_-]{0,12}(-0000\d-of-0000\d)?\.gguf", fullmatch=True)),
    st.none() | st.text("Q4_KM-./ 0agguf"),
)
def test_any_files_end_in_a_choice_or_an_error(files: list[str], wanted: str | None) -> None:
    with suppress(TrinityError):
        found = chosen(wanted, files)
        assert found
        assert set(found) <= set(files)
