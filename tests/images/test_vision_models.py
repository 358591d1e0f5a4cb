"""Small vision models against transformers, and against themselves in other circumstances."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

import trinity
from tests.images import small_lfm2_models as lfm2
from tests.images import small_minicpm_models as minicpm
from tests.images import small_qwen_models as qwen
from tests.images import small_vision_models as small
from tests.images.changed_directories import changed_copy
from tests.images.conftest import NAMES
from tests.images.mmproj_files import write_mmproj
from trinity.errors import ConfigError, ContextLengthError, InputError, UnsupportedError
from trinity.images.cutting import crops
from trinity.images.gemma3 import GEMMA3
from trinity.images.tower_config import checked_channels
from trinity.runtime.image_rows import PromptIds, is_token
from trinity.runtime.interface import Rows
from trinity.server.app import make_app
from trinity.server.models import Models
from trinity.server.served import Served
from trinity.server.settings import ServerOptions

CASES = [(name, number) for name in NAMES for number in range(len(small.SIZES))]
RECURRENT = ("qwen35", *lfm2.NAMES)
WRITTEN_MARKS = {"<|image|>", "<|video|>", "<|audio|>"}  # of Gemma 4
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": small.TOKENS, "ignore_eos": True}


def asked(*images: object, text: str = small.QUESTION) -> list[dict[str, Any]]:
    parts = [{"type": "image", "image": image} for image in images]
    return [{"role": "user", "content": [*parts, {"type": "text", "text": text}]}]


def logits_of(model: trinity.Model, ids: PromptIds, count: int) -> np.ndarray:
    with model.exclusive() as engine:
        cache = engine.new_cache("f32")
        rows = Rows(cache, ids, logits=count, prompt=True, images=ids.images)
        found = engine.step([rows]).copy()
        cache.release()
    return found


def plain(name: str, ids: list[int]) -> list[int]:
    """The ids that transformers has: each row of an image has the same token."""
    row = 256 + small.SPECIAL[name].index(small.ROW_TOKENS[name])
    return [token if is_token(token) else row for token in ids]


@pytest.mark.parametrize(("name", "number"), CASES)
def test_transformers_computes_the_same(
    name: str, number: int, models: dict[str, trinity.Model], goldens: dict[str, np.ndarray]
) -> None:
    model, image = models[name], small.image(*small.SIZES[number])
    expected = {
        what: goldens[f"{name}_{number}_{what}"] for what in ("ids", "rows", "logits", "tokens")
    }
    ids = model.apply_chat_template(asked(image))
    assert isinstance(ids, PromptIds)
    assert plain(name, ids) == expected["ids"].tolist()
    rows = np.concatenate([placed.rows for placed in ids.images])
    np.testing.assert_allclose(rows, expected["rows"], atol=1e-3 * np.abs(expected["rows"]).max())
    np.testing.assert_allclose(logits_of(model, ids, 4), expected["logits"], atol=2e-3)
    assert list(model.generate(ids, **GREEDY).token_ids) == expected["tokens"].tolist()


@pytest.mark.full
@pytest.mark.parametrize("size", small.FURTHER)
@pytest.mark.parametrize("name", NAMES)
def test_images_of_further_sizes_are_those_of_transformers(
    name: str, size: tuple[int, int], models: dict[str, trinity.Model],
    goldens: dict[str, np.ndarray],
) -> None:  # fmt: skip
    model, messages = models[name], asked(small.blocks(*size))
    prefix = "{}_{}x{}_".format(name, *size)
    if f"{prefix}ids" not in goldens:  # transformers refuses it
        assert size == (3, 5000)
        if name in qwen.NAMES:
            with pytest.raises(InputError, match="200 times as long as wide"):
                model.apply_chat_template(messages)
        else:
            assert len(model.apply_chat_template(messages).images) > 0
        return
    ids = model.apply_chat_template(messages)
    assert isinstance(ids, PromptIds)
    assert plain(name, ids) == goldens[f"{prefix}ids"].tolist()
    expected = goldens[f"{prefix}rows"]
    rows = np.concatenate([placed.rows for placed in ids.images])[:: small.STEP]
    limit = 1e-3 * np.abs(expected).max()
    if name in minicpm.NAMES and size == (3, 5000):
        # With the small tiles of these models, the whole image has more patches than trinity's
        # limit: it is shortened. Its slices are the same.
        whole = -(-len(ids.images[0].rows) // small.STEP)
        np.testing.assert_allclose(rows[whole:], expected[whole:], atol=limit)
        return
    np.testing.assert_allclose(rows, expected, atol=limit)
    np.testing.assert_allclose(logits_of(model, ids, 1), goldens[f"{prefix}logits"], atol=2e-3)
    tokens = goldens[f"{prefix}tokens"].tolist()
    # After a mark of images or videos that the model writes, transformers computes other tokens: it
    # replaces the mark.
    marks = (256 + i for i, text in enumerate(small.SPECIAL[name]) if text in WRITTEN_MARKS)
    end = min((1 + tokens.index(mark) for mark in marks if mark in tokens), default=len(tokens))
    assert list(model.generate(ids, **GREEDY).token_ids)[:end] == tokens[:end]


def files() -> Iterator[tuple[bytes, Image.Image]]:
    """Files of a picture in every mode and orientation, and what they show in RGB."""

    def saved(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
        stream = io.BytesIO()
        image.save(stream, kind, **options)
        return stream.getvalue()

    image = small.blocks(70, 41)
    for mode in ("RGB", "L", "P", "1"):
        changed = image.convert(mode)
        yield saved(changed), changed.convert("RGB")
    grey = np.asarray(image.convert("L"))
    deep = saved(Image.fromarray(grey.astype(np.uint16) * 256 + 77))
    yield deep, Image.fromarray(grey).convert("RGB")
    clear = image.convert("RGBA")
    clear.putalpha(image.convert("L"))
    white = Image.new("RGBA", image.size, "white")
    white.paste(clear, mask=clear.getchannel("A"))
    yield saved(clear), white.convert("RGB")
    inks = saved(image.convert("CMYK"), "JPEG", quality=95)
    yield inks, Image.open(io.BytesIO(inks)).convert("RGB")
    values = np.asarray(image)
    for orientation in range(1, 9):
        turned = values.swapaxes(0, 1) if orientation > 4 else values
        across, down = orientation in (2, 3, 6, 7), orientation in (3, 4, 7, 8)
        turned = turned[:: -1 if down else 1, :: -1 if across else 1]
        exif = Image.Exif()
        exif[0x0112] = orientation
        yield saved(image, exif=exif), Image.fromarray(np.ascontiguousarray(turned))


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_files_of_every_mode_have_the_pixels_that_they_show(
    name: str, models: dict[str, trinity.Model]
) -> None:
    for content, shown in files():
        given, expected = (models[name].apply_chat_template(asked(one)) for one in (content, shown))
        assert given == expected  # ids of rows are made of the pixels
        assert given.images


@pytest.fixture(scope="module")
def scanning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[trinity.Model]:
    with trinity.load(small.write_scanning(tmp_path_factory.mktemp("scanning") / "m")) as model:
        yield model


@pytest.mark.parametrize("number", range(len(small.SIZES)))
def test_pan_and_scan_is_that_of_transformers(
    number: int, scanning: trinity.Model, goldens: dict[str, np.ndarray]
) -> None:
    def expected(what: str) -> np.ndarray:
        return goldens[f"scanned_gemma3_{number}_{what}"]

    ids = scanning.apply_chat_template(asked(small.image(*small.SIZES[number])))
    assert isinstance(ids, PromptIds)
    assert plain("gemma3", ids) == expected("ids").tolist()
    assert len(ids.images) == {0: 1, 1: 3, 2: 1, 3: 4, 4: 3}[number]
    rows = np.concatenate([placed.rows for placed in ids.images])
    limit = 1e-3 * np.abs(expected("rows")).max()
    np.testing.assert_allclose(rows, expected("rows"), atol=limit)
    np.testing.assert_allclose(logits_of(scanning, ids, 4), expected("logits"), atol=2e-3)
    assert list(scanning.generate(ids, **GREEDY).token_ids) == expected("tokens").tolist()


@pytest.mark.parametrize(
    ("size", "grid"),
    [  # transformers' Gemma3ImageProcessor with its defaults: columns and rows
        ((896, 896), (0, 0)), ((1000, 900), (0, 0)), ((1024, 512), (2, 1)), ((4000, 3000), (2, 1)),
        ((3000, 4000), (1, 2)), ((600, 255), (0, 0)), ((5000, 400), (4, 1)), ((256, 600), (1, 2)),
        ((700, 300), (2, 1)), ((3, 5000), (0, 0)),
    ],
)  # fmt: skip
def test_crops_of_pan_and_scan(size: tuple[int, int], grid: tuple[int, int]) -> None:
    settings = replace(GEMMA3.usual_settings, most_crops=4, least_crop=256, least_ratio=1.2)
    assert crops(*size, settings) == grid


@pytest.mark.parametrize("name", sorted(small.MODULES))
def test_several_images_have_the_logits_and_tokens_of_transformers(
    name: str, models: dict[str, trinity.Model], goldens: dict[str, np.ndarray]
) -> None:
    model, number = models[name], len(small.SIZES)
    first, second = (small.image(*size) for size in small.SIZES[:2])
    content = [
        {"type": "image", "image": first}, {"type": "text", "text": "And this? "},
        {"type": "image", "image": second}, {"type": "text", "text": small.QUESTION},
    ]  # fmt: skip
    ids = model.apply_chat_template([{"role": "user", "content": content}])
    assert plain(name, ids) == goldens[f"{name}_{number}_ids"].tolist()
    expected = goldens[f"{name}_{number}_logits"]
    np.testing.assert_allclose(logits_of(model, ids, 4), expected, atol=2e-3)
    tokens = goldens[f"{name}_{number}_tokens"].tolist()
    assert list(model.generate(ids, **GREEDY).token_ids) == tokens
    history = [{"role": "user", "content": content}, {"role": "assistant", "content": "Yes."},
               {"role": "user", "content": "Sure?"}]  # fmt: skip
    warm = model.chat(history, **GREEDY)
    assert model.chat(history, cache_prompt=False, **GREEDY).token_ids == warm.token_ids


@pytest.mark.parametrize("name", NAMES)
def test_a_gguf_model_with_its_mmproj_file_computes_the_same(
    name: str, directories: dict[str, Path], models: dict[str, trinity.Model], tmp_path: Path
) -> None:
    from trinity.tools.convert import convert

    convert(directories[name], tmp_path / "text.gguf", "f32")
    write_mmproj(name, tmp_path / "mmproj.gguf")
    messages = asked(small.image(100, 60))
    with trinity.load(tmp_path / "text.gguf", mmproj=tmp_path / "mmproj.gguf") as model:
        assert model.reads_images
        given, expected = (m.apply_chat_template(messages) for m in (model, models[name]))
        assert plain(name, given) == plain(name, expected)
        for mine, theirs in zip(given.images, expected.images, strict=True):
            np.testing.assert_array_equal(mine.rows, theirs.rows)
        answers = [m.chat(messages, **GREEDY).token_ids for m in (model, models[name])]
    assert answers[0] == answers[1]


@pytest.mark.parametrize("name", ["idefics3", "gemma3"])
def test_old_mmproj_files_have_up_and_down_swapped(name: str, tmp_path: Path) -> None:
    from trinity.images.mmproj import MmprojFile
    from trinity.images.opening import FAMILIES

    families = {family.name: family for family in FAMILIES}
    found = []
    for swapped in (False, True):
        path = write_mmproj(name, tmp_path / f"{swapped}.gguf", swapped=swapped)
        file = MmprojFile(path, families)
        tensors = file.tensors(file.tower(48)[0])
        found.append(tensors.tensor("v.blk.1.ffn_down.weight").dequantize().copy())
        file.close()
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("name", NAMES)
def test_steps_of_any_size_and_other_requests_give_the_same_answer(
    name: str, directories: dict[str, Path], models: dict[str, trinity.Model]
) -> None:
    prompts = [
        models[name].apply_chat_template(asked(small.image(100, 60))),
        models[name].apply_chat_template(asked()),
        models[name].apply_chat_template(asked(small.image(64, 64), small.image(40, 90))),
    ]
    alone = [models[name].generate(ids, **GREEDY).token_ids for ids in prompts]
    options: dict[str, Any] = {"batch_invariant": True, "threads": 1}
    with trinity.load(directories[name], batch_size=7, **options) as model:
        together = dict(model.generate_batch(prompts, **GREEDY))
    assert [together[i].token_ids for i in range(3)] == alone


@pytest.mark.parametrize("name", sorted({*NAMES} - {*RECURRENT}))
def test_a_known_image_is_not_computed_again(name: str, models: dict[str, trinity.Model]) -> None:
    model = models[name]
    first, second = small.image(120, 70), small.image(121, 70)
    cold = model.chat(asked(first), **GREEDY)
    warm = model.chat(asked(first), **GREEDY)
    assert warm.token_ids == cold.token_ids
    assert warm.timings.cached_tokens >= cold.timings.prompt_tokens - 20
    other = model.chat(asked(second), **GREEDY)
    assert other.timings.cached_tokens < 20
    assert model.chat(asked(second), cache_prompt=False, **GREEDY).token_ids == other.token_ids
    history = [*asked(first), {"role": "assistant", "content": "A dog."}, *asked(second)]
    assert model.chat(history, **GREEDY).timings.cached_tokens >= cold.timings.prompt_tokens - 20


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_models_reuse_whole_pages_with_images(
    name: str, models: dict[str, trinity.Model]
) -> None:
    model = models[name]
    messages = asked(small.image(120, 70), text=30 * small.QUESTION)
    cold = model.chat(messages, **GREEDY)
    warm = model.chat(messages, **GREEDY)
    assert warm.timings.cached_tokens >= 128
    assert warm.token_ids == cold.token_ids
    other = asked(small.image(121, 70), text=30 * small.QUESTION)
    assert model.chat(other, **GREEDY).timings.cached_tokens == 0


@pytest.mark.parametrize("name", NAMES)
def test_every_form_of_an_image_is_the_same_image(
    name: str, models: dict[str, trinity.Model], tmp_path: Path
) -> None:
    image = small.image(90, 40)
    image.save(tmp_path / "image.png")
    content = (tmp_path / "image.png").read_bytes()
    url = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    forms: list[dict[str, Any]] = [
        {"type": "image", "image": image},
        {"type": "image", "image": str(tmp_path / "image.png")},
        {"type": "image", "path": tmp_path / "image.png"},
        {"type": "image", "image": content},
        {"type": "image", "image": np.asarray(image)},
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "input_image", "image_url": url},
    ]
    prompts = [
        models[name].apply_chat_template([{"role": "user", "content": [form]}]) for form in forms
    ]
    assert all(ids == prompts[0] for ids in prompts[1:])


@pytest.mark.parametrize("name", NAMES)
def test_a_user_may_write_the_mark_of_an_image(name: str, models: dict[str, trinity.Model]) -> None:
    model, image = models[name], small.image(50, 50)
    mark = "<start_of_image>" if name == "gemma3" else small.ROW_TOKENS[name]
    ids = model.apply_chat_template(asked(image, text=f"What does {mark} mean?"))
    usual = model.apply_chat_template(asked(image, text="What does  mean?"))
    assert len(ids.images) == len(usual.images)
    assert model.detokenize([i for i in ids if is_token(i)], remove_special=False).count(mark)


@pytest.mark.parametrize("name", NAMES)
def test_options_that_look_at_the_prompt_skip_rows_of_images(
    name: str, models: dict[str, trinity.Model]
) -> None:
    messages = asked(small.image(80, 80))
    options: dict[str, Any] = {"repetition_penalty": 1.3, "penalty_last_n": -1, "seed": 3}
    answer = models[name].chat(messages, max_tokens=40, speculative=True, **options)
    assert all(is_token(token) for token in answer.token_ids)
    again = models[name].chat(messages, max_tokens=40, speculative=False, **options)
    assert again.token_ids == answer.token_ids


def test_a_result_of_a_tool_may_have_an_image(models: dict[str, trinity.Model]) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": {}}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": [
            {"type": "text", "text": "here"},
            {"type": "image", "image": small.image(64, 64)},
        ]},
    ]  # fmt: skip
    prompt = models["gemma3"].chat_prompt(messages)
    assert isinstance(prompt.ids, PromptIds)
    assert len(prompt.ids.images) == 1


@pytest.mark.parametrize("name", NAMES)
def test_the_server_reads_images_as_the_model(name: str, models: dict[str, trinity.Model]) -> None:
    model, stream = models[name], io.BytesIO()
    small.image(100, 60).save(stream, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode()}"
    content = [
        {"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What is it?"},
    ]  # fmt: skip
    body = {"messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 12}
    app = make_app(Models([Served("m", "m", lambda: model, model=model)]), ServerOptions())
    client = TestClient(app, base_url="http://localhost")
    answer = client.post("/v1/chat/completions", json=body).json()
    assert "choices" in answer, answer
    expected = model.chat(asked(small.image(100, 60)), temperature=0, max_tokens=12)
    assert answer["choices"][0]["message"]["content"] == expected.text


def test_text_models_refuse_images() -> None:
    template = "{{ messages[0]['content'] }}"
    with (
        trinity.load(trinity.demo_model()) as model,
        pytest.raises(InputError, match="the model reads only text"),
    ):
        model.chat_prompt(asked(small.image(8, 8)), template=template)


@pytest.mark.parametrize("found", [None, 0.5, [0.5] * 2, [[0.5], [0.5, 0.5], 0.5], [0.0] * 3])
def test_the_deviation_of_a_channel_is_a_positive_number(found: object) -> None:
    with pytest.raises(ConfigError, match=r"a\.gguf: image_std is .* must be three numbers"):
        checked_channels(found, "a.gguf: image_std", positive=True)


def test_an_mmproj_file_of_another_model_is_refused(
    tmp_path: Path,
) -> None:
    path = write_mmproj("gemma3", tmp_path / "mmproj.gguf")
    with pytest.raises(ConfigError, match="rows of 48 values, but the text model has rows of"):
        trinity.load(trinity.demo_model(), mmproj=path)
    with pytest.raises(UnsupportedError, match=r"not a projector \(mmproj\)"):
        trinity.load(trinity.demo_model(), mmproj=trinity.demo_model())


def test_a_tower_that_is_not_supported_leaves_the_text(
    directories: dict[str, Path], tmp_path: Path
) -> None:
    folder, changes = tmp_path / "model", dict[str, object](hidden_act="mish")
    changed_copy(directories["gemma3"], folder, changes, part="vision_config")
    lines: list[str] = []
    with trinity.load(folder, progress=lines.append) as model:
        assert not model.reads_images
        model.chat([{"role": "user", "content": "Hello"}], max_tokens=1)
    assert any("images are not read" in line and "hidden_act is 'mish'" in line for line in lines)


def test_bytes_of_an_image_in_memory(models: dict[str, trinity.Model]) -> None:
    stream = io.BytesIO()
    small.image(30, 30).save(stream, "JPEG")
    assert models["gemma3"].chat(asked(stream.getvalue()), max_tokens=1).token_ids


def test_a_model_of_ollamas_store_has_its_tower(
    directories: dict[str, Path], models: dict[str, trinity.Model], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from tests.ollama_stores import write_store
    from trinity.tools.convert import convert

    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "store"))
    convert(directories["gemma3"], tmp_path / "text.gguf", "f32")
    tower = write_mmproj("gemma3", tmp_path / "mmproj.gguf").read_bytes()
    write_store(tmp_path / "store", tmp_path / "text.gguf", projector=tower)
    messages = asked(small.image(64, 64))
    with trinity.load("ollama:m") as model:
        assert model.reads_images
        answer = model.chat(messages, **GREEDY)
    assert answer.token_ids == models["gemma3"].chat(messages, **GREEDY).token_ids


def test_images_that_exceed_the_context_are_refused_before_they_are_computed(
    directories: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from trinity.images.tower import Tower

    def run(*_: object) -> None:
        raise AssertionError("an image was computed")

    with trinity.load(directories["idefics3"], context_length=64) as model:
        monkeypatch.setattr(Tower, "run", run)
        for images in (5 * [small.image(2, 2)], [small.image(128, 128)]):
            with pytest.raises(ContextLengthError, match="at least 80 tokens"):
                model.chat(asked(*images))


@pytest.mark.parametrize("name", NAMES)
def test_quantized_models_read_images(
    name: str, directories: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRINITY_CACHE_DIR", str(tmp_path))
    with trinity.load(directories[name], quantize="Q8_0") as model:
        assert model.reads_images
        assert model.chat(asked(small.image(64, 64)), max_tokens=2).token_ids


def test_a_closed_model_encodes_nothing(directories: dict[str, Path]) -> None:
    model = trinity.load(directories["gemma3"])
    model.close()
    model.close()
    with pytest.raises(InputError, match="model is closed"):
        model.chat(asked(small.image(8, 8)))
