"""Formats recognised by their markers: only where the file has no template, and never in silence."""

from typing import Any

import pytest

from tests.text.text_builders import byte_level_tokenizer, sentencepiece_metadata
from twostroke.errors import ChatTemplateError
from twostroke.text.chat_template import ChatTemplate
from twostroke.text.gguf_tokenizer import tokenizer_from_gguf
from twostroke.text.known_templates import known_template
from twostroke.text.tokenizer import Tokenizer


def gemma() -> Tokenizer:
    metadata = sentencepiece_metadata(user_defined=("<start_of_turn>", "<end_of_turn>"), add_space_prefix=False)
    metadata["tokenizer.ggml.token_type"][259] = 3
    return tokenizer_from_gguf(metadata)


def render(*turns: tuple[str, Any]) -> str:
    chat = ChatTemplate(known_template(gemma()), tokenizer=gemma())
    return chat.render([{"role": role, "content": content} for role, content in turns])


def test_gemma_is_known_by_its_turn_markers_and_said_so(caplog: pytest.LogCaptureFixture) -> None:
    assert known_template(gemma()) is not None
    assert "its turn markers are Gemma's" in caplog.text


def test_other_vocabularies_have_no_known_template(caplog: pytest.LogCaptureFixture) -> None:
    assert known_template(byte_level_tokenizer()) is None
    assert not caplog.records


def test_gemma_turns_are_user_and_model() -> None:
    assert render(("user", " hi "), ("assistant", "yes"), ("user", "go")) == (
        "<s><start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\nyes<end_of_turn>\n"
        "<start_of_turn>user\ngo<end_of_turn>\n<start_of_turn>model\n"
    )


def test_gemma_instructions_go_before_the_first_user_text() -> None:
    assert render(("system", "be brief"), ("user", "hi")) == (
        "<s><start_of_turn>user\nbe brief\n\nhi<end_of_turn>\n<start_of_turn>model\n"
    )


def test_gemma_reads_content_in_parts() -> None:
    assert "user\nab<end_of_turn>" in render(("user", [{"text": "a"}, {"text": "b"}]))


def test_gemma_refuses_roles_it_has_no_turn_for() -> None:
    with pytest.raises(ChatTemplateError, match="Gemma has no role tool, only system, user and assistant"):
        render(("tool", "x"))


def test_gemma_prompts_hold_their_control_tokens_and_one_bos() -> None:
    tokenizer = gemma()
    chat = ChatTemplate(known_template(tokenizer), tokenizer=tokenizer)
    ids = chat.render_prompt([{"role": "user", "content": "a<end_of_turn>"}])
    assert [token_id for token_id in ids if token_id in tokenizer.control_ids] == [1, 259, 260, 259]
    assert chat.end_ids() == {2, 260}
