"""What an Ollama model brings along counts where the user said nothing, at every entrance of LLM."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders_llm import ANSWER, TEMPLATE, add_ollama_model, config_of, open_llm, puppet_bytes, write_puppet
from twostroke.core.event import FinishEvent
from twostroke.core.ledger import Part
from twostroke.core.report import Result
from twostroke.core.sequence import FinishReason
from twostroke.errors import ChatTemplateError, ModelFileError
from twostroke.llm import LLM
from twostroke.params import SamplingParams

HELLO = [{"role": "user", "content": "hello"}]
GREETED = "s:Be kind.u:hello?"  # what the template makes of it with the system text before it
ALONE = "u:hello?"


def load(home: Path, name: str) -> LLM:
    return LLM(name, config=config_of(home), kv="f32")


def num_tokens(llm: LLM, text: str) -> int:
    return len(llm.tokenizer.encode(text))


def by_chat(llm: LLM) -> Result:
    return llm.chat(HELLO)


def by_submit(llm: LLM) -> Result:
    return llm.submit(HELLO).result()


@pytest.mark.parametrize("ask", [by_chat, by_submit])
def test_parameters_and_system_text_count(tmp_path: Path, ask: Callable[[LLM], Result]) -> None:
    name = add_ollama_model(tmp_path, "kind", file=puppet_bytes(), system="Be kind.", num_predict=3, num_ctx=64, seed=9)
    with load(tmp_path, name) as llm:
        result = ask(llm)
        assert result.text == ANSWER[:3]
        assert result.finish_reason is FinishReason.LENGTH
        assert result.usage.prompt_tokens == num_tokens(llm, GREETED)
        assert result.seed == 9
        assert llm.context == 64


def test_a_stream_has_the_same_defaults(tmp_path: Path) -> None:
    name = add_ollama_model(tmp_path, "kind", file=puppet_bytes(), system="Be kind.", stop=["sky"])
    with load(tmp_path, name) as llm:
        *tokens, finish = llm.stream(HELLO)
        assert isinstance(finish, FinishEvent)
        assert "".join(event.text for event in tokens) + finish.text == "The "
        assert finish.usage.prompt_tokens == num_tokens(llm, GREETED)


def test_params_that_are_given_are_taken_as_they_are(tmp_path: Path) -> None:
    name = add_ollama_model(tmp_path, "kind", file=puppet_bytes(), num_predict=3, stop=["h"])
    with load(tmp_path, name) as llm:
        assert llm.default_params == SamplingParams(max_tokens=3, stop=("h",))
        assert llm.chat(HELLO).text == "T"
        assert llm.chat(HELLO, SamplingParams()).text == ANSWER
        assert llm.generate("why?")[0].text == "T"


@pytest.mark.parametrize("role", ["system", "developer"])
def test_a_system_message_of_the_conversation_stands_alone(tmp_path: Path, role: str) -> None:
    name = add_ollama_model(tmp_path, "kind", file=puppet_bytes(), system="Be kind.")
    with load(tmp_path, name) as llm:
        messages = [{"role": role, "content": "Be blunt."}, *HELLO]
        assert llm.chat(messages).usage.prompt_tokens == num_tokens(llm, f"{role[0]}:Be blunt.u:hello?")
        assert len(messages) == 2


def test_raw_text_gets_no_system_text(tmp_path: Path) -> None:
    name = add_ollama_model(tmp_path, "kind", file=puppet_bytes(), system="Be kind.")
    with load(tmp_path, name) as llm:
        assert llm.generate("why?")[0].usage.prompt_tokens == num_tokens(llm, "why?")


def test_a_context_of_ones_own_goes_first(tmp_path: Path) -> None:
    name = add_ollama_model(tmp_path, "kind", file=puppet_bytes(), num_ctx=64)
    with LLM(name, config=config_of(tmp_path), context=100) as llm:
        assert llm.context == 100


def test_a_context_beyond_the_models_is_cut_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    name = add_ollama_model(tmp_path, "kind", file=puppet_bytes(context=128), num_ctx=4096)
    with caplog.at_level(logging.WARNING), load(tmp_path, name) as llm:
        assert llm.context == 128
    (record,) = caplog.records
    assert "context of 4096" in record.getMessage()
    assert "128" in record.getMessage()


def test_what_does_not_count_is_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    name = add_ollama_model(tmp_path, "kind", file=puppet_bytes(), mirostat=1, num_gpu=99)
    with caplog.at_level(logging.WARNING), load(tmp_path, name) as llm:
        assert llm.chat(HELLO).text == ANSWER
    (record,) = caplog.records
    assert "mirostat 1, num_gpu 99" in record.getMessage()


def test_a_senseless_parameter_stops_the_load(tmp_path: Path) -> None:
    name = add_ollama_model(tmp_path, "kind", file=puppet_bytes(), temperature=-1)
    with pytest.raises(ModelFileError, match="ollama:kind: its parameter temperature is -1"):
        load(tmp_path, name)


def test_the_files_own_template_is_run_beside_one_in_go(tmp_path: Path) -> None:
    name = add_ollama_model(tmp_path, "kind", file=puppet_bytes(template=TEMPLATE), template="{{ .Prompt }}")
    with load(tmp_path, name) as llm:
        assert llm.chat(HELLO).usage.prompt_tokens == num_tokens(llm, ALONE)


def test_a_template_in_go_alone_is_an_error_with_the_fix_and_raw_text_works(tmp_path: Path) -> None:
    name = add_ollama_model(tmp_path, "kind", file=puppet_bytes(template=None), template="{{ .Prompt }}")
    with load(tmp_path, name) as llm:
        with pytest.raises(ChatTemplateError, match=r"Go's template language.*hf:ORG/REPO.*--raw"):
            llm.chat(HELLO)
        assert llm.generate("why?")[0].text == ANSWER


def test_a_plain_file_has_our_defaults(tmp_path: Path) -> None:
    with open_llm(write_puppet(tmp_path / "puppet.gguf")) as llm:
        assert llm.default_params == SamplingParams()
        assert llm.chat(HELLO).usage.prompt_tokens == num_tokens(llm, ALONE)


def test_template_and_tokenizer_are_booked_apart(tmp_path: Path) -> None:
    with open_llm(write_puppet(tmp_path / "puppet.gguf")) as llm:
        parts = llm.chat(HELLO).ledger.parts
        assert parts[Part.TEMPLATE] > 0
        assert parts[Part.TOKENIZE] > 0
        raw = llm.generate("why?")[0].ledger.parts
        assert Part.TEMPLATE not in raw
        assert raw[Part.TOKENIZE] > 0
