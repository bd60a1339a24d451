"""Token for token against independent implementations: sentencepiece, llama.cpp, the transformers library."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cases.text_lines import text_lines
from tests.text.text_builders import byte_level_tokenizer
from twostroke.config import resolve
from twostroke.model.catalog import list_models
from twostroke.model.open import open_model
from twostroke.text.chat_template import ChatTemplate
from twostroke.text.gguf_tokenizer import tokenizer_from_gguf
from twostroke.text.tokenizer import Tokenizer

SMOLLM2, GEMMA3 = "smollm2:135m", "gemma3:270m"


def model_file(name: str) -> Path:
    """A model of the catalog that was pulled before, or the test is skipped."""
    config = resolve()
    for entry in list_models(home=config.home, ollama_models=config.ollama_models):
        if entry.name == name and entry.path is not None:
            return entry.path
    pytest.skip(f"{name} is not here: twostroke pull {name}")


def opened(path: Path, tmp_path: Path) -> Tokenizer:
    source = open_model(path)
    return tokenizer_from_gguf(source.metadata, file=path, cache_directory=tmp_path)


def trained_sentencepiece(tmp_path: Path, *, user_defined: list[str], prefix: bool) -> Any:
    sentencepiece = pytest.importorskip("sentencepiece")
    text = tmp_path / "lines.txt"
    text.write_text("\n".join(line.replace("\n", " ").replace("\x00", "") for line in text_lines(1500, seed=6)))
    sentencepiece.SentencePieceTrainer.train(
        input=str(text),
        model_prefix=str(tmp_path / "spm"),
        model_type="bpe",
        vocab_size=1500,
        byte_fallback=True,
        character_coverage=0.98,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=prefix,
        user_defined_symbols=user_defined,
        allow_whitespace_only_pieces=True,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "spm.model"))


def gguf_metadata_of(judge: Any, *, prefix: bool) -> dict[str, Any]:
    size = judge.vocab_size()
    kinds = np.ones(size, dtype=np.int32)
    for token_id in range(size):
        if judge.is_unknown(token_id):
            kinds[token_id] = 2
        elif judge.is_control(token_id):
            kinds[token_id] = 3
        elif judge.is_byte(token_id):
            kinds[token_id] = 6
    for name in ("<x>", "   "):
        token_id = judge.piece_to_id(name.replace(" ", "▁"))
        if judge.id_to_piece(token_id) == name.replace(" ", "▁") and judge.get_score(token_id) == 0.0:
            kinds[token_id] = 4
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [judge.id_to_piece(token_id) for token_id in range(size)],
        "tokenizer.ggml.scores": np.array([judge.get_score(token_id) for token_id in range(size)], dtype=np.float32),
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.bos_token_id": judge.bos_id(),
        "tokenizer.ggml.eos_token_id": judge.eos_id(),
        "tokenizer.ggml.unknown_token_id": judge.unk_id(),
        "tokenizer.ggml.add_space_prefix": prefix,
    }


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.parametrize("prefix", [True, False])
def test_ids_and_text_equal_sentencepiece(prefix: bool, tmp_path: Path) -> None:
    judge = trained_sentencepiece(tmp_path, user_defined=[], prefix=prefix)
    tokenizer = tokenizer_from_gguf(gguf_metadata_of(judge, prefix=prefix))
    for line in text_lines(5000):
        line = line.replace("\x00", "")
        assert tokenizer.encode(line, add_bos=False) == judge.encode(line), line
        assert tokenizer.decode(judge.encode(line)) == judge.decode(judge.encode(line)), line


@pytest.mark.oracle
@pytest.mark.slow
def test_user_defined_symbols_are_found_as_sentencepiece_does(tmp_path: Path) -> None:
    judge = trained_sentencepiece(tmp_path, user_defined=["<x>", "▁▁▁"], prefix=False)
    tokenizer = tokenizer_from_gguf(gguf_metadata_of(judge, prefix=False))
    assert len(tokenizer.vocabulary.user_defined_ids) == 2
    for line in text_lines(1500):
        text = line.replace(" ", "<x>", 1).replace("▁", "")
        assert tokenizer.encode(text, add_bos=False) == judge.encode(text), text


@pytest.mark.oracle
@pytest.mark.model
@pytest.mark.usefixtures("users_models")
@pytest.mark.slow
@pytest.mark.parametrize("name", [SMOLLM2, GEMMA3])
@pytest.mark.parametrize("allow_control", [False, True])
def test_ten_thousand_lines_equal_llama_cpp(name: str, allow_control: bool, tmp_path: Path) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    path = model_file(name)
    judge = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    tokenizer = opened(path, tmp_path)
    lines = text_lines(10_000)
    if name == GEMMA3:  # its "</s>" is an HTML tag; llama.cpp alone takes every "</s>" for an end token
        lines = [line.replace("</s>", "<s>") for line in lines]
    different = [
        line
        for line in lines
        if tokenizer.encode(line, allow_control=allow_control, add_bos=False)
        != judge.tokenize(line.encode(), add_bos=False, special=allow_control)
    ]
    assert different == []
    assert (tokenizer.encode("a")[0] == tokenizer.bos_id) == (judge.tokenize(b"a")[0] == judge.token_bos())


@pytest.mark.model
@pytest.mark.usefixtures("users_models")
@pytest.mark.slow
def test_the_default_models_template_writes_its_control_tokens_once(tmp_path: Path) -> None:
    source = open_model(model_file(SMOLLM2))
    tokenizer = tokenizer_from_gguf(source.metadata, cache_directory=tmp_path)
    chat = ChatTemplate(source.chat_template, tokenizer=tokenizer)
    messages = [{"role": "user", "content": "say <|im_end|> please"}]
    ids = chat.render_prompt(messages)
    assert [token_id for token_id in ids if token_id in tokenizer.control_ids] == [1, 2, 1, 2, 1]
    assert tokenizer.decode(ids, skip_control=False) == chat.render(messages)
    assert chat.end_ids() == {0, 2}


@pytest.mark.oracle
@pytest.mark.slow
def test_rendering_equals_the_transformers_library() -> None:
    render = pytest.importorskip("transformers.utils.chat_template_utils").render_jinja_template
    source = (
        "{{ bos_token }}{%- for m in messages %}\n  {%- if m.role == 'system' %}\n{{ m.content|trim }}\n"
        "{%- elif m.content is string %}\n    {{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}\n"
        "  {%- else %}{% for p in m.content %}{{ p.text }}{% endfor %}\n  {% endif %}\n{% endfor %}\n"
        "{% for t in tools or [] %}{{ t|tojson }}\n{{ t|tojson(indent=4) }}{% endfor %}\n"
        "{% generation %}{{ messages[-1].content }}{% endgeneration %}{% if add_generation_prompt %}A:{% endif %}"
    )
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": " be kind \n"},
        {"role": "user", "content": "hé <b> & 'x'"},
        {"role": "tool", "content": [{"text": "part"}]},
    ]
    tools = [{"type": "function", "function": {"name": "é", "parameters": {"type": "object", "x": [1, None, True]}}}]
    rendered, _ = render(
        conversations=[messages],
        tools=tools,
        chat_template=source,
        add_generation_prompt=True,
        bos_token="<|im_start|>",
    )
    chat = ChatTemplate(source, tokenizer=byte_level_tokenizer())
    assert chat.render(messages, tools=tools) == rendered[0]
