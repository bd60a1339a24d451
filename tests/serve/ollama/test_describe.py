"""Facts of a model in Ollama's words."""

import pytest

from tests.serve.serve_builders import make_facts
from twostroke.params import SamplingParams
from twostroke.serve.ollama.describe import NEVER, capabilities, details, parameter_size, parameters_of, running, shown


def test_details_name_family_size_and_types() -> None:
    assert details(make_facts()) == {
        "parent_model": "",
        "format": "gguf",
        "family": "llama",
        "families": ["llama"],
        "parameter_size": "1.23M",
        "quantization_level": "Q4_K_M",
    }


@pytest.mark.parametrize(
    ("count", "text"), [(8_030_000_000, "8.03B"), (134_515_008, "134.52M"), (1_500, "1.50K"), (999, "999")]
)
def test_sizes_are_short(count: int, text: str) -> None:
    assert parameter_size(count) == text


def test_parameters_are_what_absent_options_mean() -> None:
    assert parameters_of(SamplingParams()) == {"temperature": 0.0, "num_predict": 256}
    own = SamplingParams(temperature=0.6, top_k=20, stop=("<end>",), repetition_penalty=1.1)
    assert parameters_of(own) == {
        "temperature": 0.6,
        "num_predict": 256,
        "top_k": 20,
        "stop": ("<end>",),
        "repeat_penalty": 1.1,
    }


def test_a_model_is_shown_without_its_place() -> None:
    params = SamplingParams(temperature=0.6, stop=('a "b"\n', "c"))
    told = shown("mine", make_facts(), params=params, context=4096, is_verbose=False)
    assert told["parameters"].splitlines() == [
        f"{'temperature':<30} 0.6",
        f"{'num_predict':<30} 256",
        rf'{"stop":<30} "a \"b\"\n"',
        f'{"stop":<30} "c"',
        f"{'num_ctx':<30} 4096",
    ]
    assert told["modelfile"].splitlines()[:2] == ["FROM mine", "PARAMETER temperature 0.6"]
    assert told["capabilities"] == ["completion"]
    assert told["license"] == "apache-2.0"
    assert told["template"] == "{{ messages }}"
    info = told["model_info"]
    assert (info["general.architecture"], info["general.parameter_count"]) == ("llama", 1_234_567)
    assert info["llama.context_length"] == 4096


@pytest.mark.parametrize(
    ("expires_s", "moment"),
    [(None, NEVER), (1_700_000_000, "2023-11-14T22:13:20Z")],
)
def test_a_loaded_model_tells_when_it_goes(expires_s: float | None, moment: str) -> None:
    assert running("mine", make_facts(), num_bytes=1, context=2, expires_s=expires_s)["expires_at"] == moment


@pytest.mark.parametrize(
    ("template", "known"),
    [
        (None, []),
        ("{{ messages }}", []),
        ("{{ tools }}<tool_call>{{ messages }}</tool_call>", ["tools"]),
        ("<tool_call>{{ messages }}</tool_call>", []),
        ("{{ messages }}<think></think>", ["thinking"]),
        ("{{ tools }}<tool_call></tool_call><think></think>", ["tools", "thinking"]),
    ],
)
def test_capabilities_are_those_of_the_template(template: str | None, known: list[str]) -> None:
    assert capabilities(template) == ["completion", *known]


def test_a_model_that_is_not_loaded_has_no_parameters() -> None:
    told = shown("mine", make_facts(), params=None, context=None, is_verbose=False)
    assert (told["parameters"], told["modelfile"]) == ("", "FROM mine\n")
