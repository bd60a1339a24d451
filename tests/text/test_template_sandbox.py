"""Hostile templates: nothing outside is reached, nothing runs for long, nothing grows large."""

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.text.text_builders import byte_level_tokenizer
from twostroke.errors import ChatTemplateError
from twostroke.text import template_limits
from twostroke.text.chat_template import ChatTemplate

TOKENIZER = byte_level_tokenizer()
MESSAGES: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]


def render(source: str, **values: Any) -> str:
    return ChatTemplate(source, tokenizer=TOKENIZER).render(MESSAGES, **values)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__class__ }}",
        "{{ messages[0].role.__class__ }}",
        "{{ ''|attr('__class__') }}",
        "{{ lipsum.__globals__ }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ self.__init__ }}{{ self._TemplateReference__context }}{{ self.__class__ }}",
        "{{ range.__globals__ }}",
        "{{ strftime_now.__globals__ }}{{ strftime_now.__closure__ }}",
        "{{ raise_exception.__globals__ }}",
        "{{ namespace.__init__.__globals__ }}",
        "{% macro f() %}{% endmacro %}{{ f.__init__.__globals__ }}{{ f._func }}",
        "{{ '{0.__class__}'.format('') }}{{ '{x.__class__}'.format_map({'x': ''}) }}",
        "{{ '%s'.__mod__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'a': 1}) }}",
        "{{ messages.clear() }}",
        "{{ open('canary', 'w') }}",
        "{{ dict.__subclasses__() }}",
        "{{ (1).__class__.__base__ }}",
        "{{ loop.__class__ }}{% for m in messages %}{{ loop._iterator }}{{ loop.__init__ }}{% endfor %}",
    ],
)
def test_python_is_out_of_reach(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ChatTemplateError):
        render(source)
    assert list(tmp_path.iterdir()) == []
    assert MESSAGES == [{"role": "user", "content": "hi"}]


def growing(start: str, step: str) -> str:
    """A template that applies `step` sixty times to x."""
    loop = f"{{% for i in range(60) %}}{{% set ns.x = {step} %}}{{% endfor %}}"
    return f"{{% set ns = namespace(x={start}) %}}{loop}"


ENDLESS = {
    "a block calling itself": "{% block a %}{{ self.a() }}{% endblock %}",
    "a block calling itself twice": (
        "{% set ns = namespace(n=0) %}{% block a scoped %}{% set ns.n = ns.n + 1 %}"
        "{% if ns.n < 40 %}{{ self.a() }}{{ self.a() }}{% endif %}{% set ns.n = ns.n - 1 %}{% endblock %}"
    ),
    "chained filters": "{{ range(90000)" + "|map('upper')|select" * 60 + "|list|length }}",
    "a long range": "{% for i in range(10**9) %}{% endfor %}",
    "nested ranges": "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "loops over a list": (
        "{% set l = range(900)|list %}{% for a in l %}{% for b in l %}{% for c in l %}{% endfor %}"
        "{% endfor %}{% endfor %}"
    ),
    "a loop that filters all": (
        "{% set l = range(900)|list %}{% for a in l %}{% for b in l %}{% for c in l if false %}{% endfor %}"
        "{% endfor %}{% endfor %}"
    ),
    "ranges as lists": "{% for i in range(1000) %}{% set x = range(100000)|list %}{% endfor %}",
    "a range in a range": "{{ range(10**12)|list }}",
    "a macro calling itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "a macro calling itself twice": (
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}"
    ),
    "a recursive loop": "{% for x in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}",
    "a recursive loop with an end": (
        "{% for x in [1, 2] recursive %}{{ loop([1, 2]) if loop.depth < 60 }}{% endfor %}"
    ),
    "sums": "{% for i in range(1000) %}{% set x = range(10000)|sum %}{% endfor %}",
    "looking through long text": "{% for i in range(90000) %}{% set x = 'q' in long %}{% endfor %}",
    "sorting": "{% for i in range(1000) %}{% set x = range(10000)|sort %}{% endfor %}",
    "comparing nested copies": (
        "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}"
        "{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}"
    ),
}
LARGE = {
    "replace by keyword": "{{ ('a' * 90000)|replace(old='a', new='b' * 90000) }}",
    "join of a lazy list": "{{ range(90000)|map('string')|join('x' * 90000) }}",
    "method join of a lazy list": "{{ ('x' * 90000).join(range(90000)|map('string')) }}",
    "join of letters": "{{ ('a' * 90000)|join('x' * 90000) }}",
    "separators": "{{ range(90000)|list|tojson(separators=('x' * 90000, ':')) }}",
    "JSON indent text": "{{ range(90000)|list|tojson(indent='x' * 90000) }}",
    "repetition": "{{ 'x' * 10**9 }}",
    "repetition turned round": "{% set x = 10**9 * 'x' %}",
    "repetition of a list": "{% set x = [0] * 10**9 %}",
    "repetitions kept": (
        "{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = ns.x + ['x' * 3000000] %}{% endfor %}"
    ),
    "doubling with ~": growing("'ab'", "ns.x ~ ns.x"),
    "doubling with +": growing("'ab'", "ns.x + ns.x"),
    "doubling lists": growing("[1]", "ns.x + ns.x"),
    "doubling blocks": (
        "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set x %}{{ ns.x }}{{ ns.x }}"
        "{% endset %}{% set ns.x = x %}{% endfor %}"
    ),
    "doubling with join": growing("'ab'", "[ns.x, ns.x]|join"),
    "doubling with .join": growing("'ab'", "ns.x.join([ns.x, ns.x])"),
    "doubling with %": growing("'ab'", "'%s%s' % (ns.x, ns.x)"),
    "doubling with format": growing("'ab'", "'{0}{0}'.format(ns.x)"),
    "doubling with replace": growing("'aa'", "ns.x|replace('a', ns.x)"),
    "doubling with .replace": growing("'aa'", "ns.x.replace('a', ns.x)"),
    "nested copies written": growing("[1]", "[ns.x, ns.x]") + "{{ ns.x }}",
    "nested copies as JSON": growing("[1]", "[ns.x, ns.x]") + "{{ ns.x|tojson }}",
    "nested copies as text": growing("[1]", "[ns.x, ns.x]") + "{{ ns.x|string|length }}",
    "nested copies joined": growing("[1]", "[ns.x, ns.x]") + "{{ (ns.x ~ '')|length }}",
    "a wide %": "{{ '%1000000000d' % 1 }}",
    "a wide % by argument": "{{ '%*d' % (1000000000, 1) }}",
    "a wide format": "{{ '{:>1000000000}'.format(1) }}",
    "a wide format by argument": "{{ '{:{}}'.format(1, 1000000000) }}",
    "a wide format filter": "{{ '%1000000000d'|format(1) }}",
    "centre": "{{ 'a'.center(10**9) }}",
    "ljust": "{{ 'a'.ljust(width=10**9) }}{{ 'a'.ljust(10**9) }}",
    "zfill": "{{ 'a'.zfill(10**9) }}",
    "indent": "{{ 'a\na'|indent(10**9) }}",
    "indents of many lines": "{{ ('\n' * 90000)|indent(90000, true) }}",
    "batch": "{{ [1]|batch(10**9, 'x')|list }}",
    "slice": "{{ [1]|slice(10**9)|list }}",
    "JSON indent": "{{ {'a': 1}|tojson(indent=10**9) }}",
    "tabs": "{{ ('\t' * 90000).expandtabs(90000) }}",
    "translate": "{{ ('a' * 90000).translate({97: 'b' * 90000}) }}",
    "powers": "{{ 10**10**10 }}{{ 10**(10**10) }}",
    "squares": growing("3", "ns.x * ns.x"),
    "fixed text in a loop": "{% for i in range(90000) %}" + "x" * 1000 + "{% endfor %}",
    "fixed text in a kept block": "{% for i in range(90000) %}{% set x %}" + "x" * 1000 + "{% endset %}{% endfor %}",
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ENDLESS)
def test_work_is_bounded(name: str) -> None:
    with pytest.raises(ChatTemplateError, match=r"units of work|too deeply|range of|more than \d+"):
        render(ENDLESS[name], long="x" * 200_000)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", LARGE)
def test_size_is_bounded(name: str) -> None:
    with pytest.raises(
        ChatTemplateError,
        match=r"more than \d+|a field of 1000|separators of up to|limit \d+|not allowed|units of work",
    ):
        render(LARGE[name])


def test_a_long_conversation_stays_well_below_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_limits, "MAX_WORK", template_limits.MAX_WORK // 10)
    source = (
        "{% for m in messages %}{% if '</think>' in m.content %}"
        "{% set c = m.content.split('</think>')[-1].lstrip('\n') %}{% else %}{% set c = m.content|trim %}{% endif %}"
        "{{ '<|im_start|>' + m.role + '\n' + c + '<|im_end|>\n' }}"
        "{% for call in m.calls %}{{ call|tojson }}{% endfor %}{% endfor %}"
    )
    messages = [{"role": "user", "content": "word " * 200, "calls": [{"a": "b"}] * 3}] * 1000
    text = ChatTemplate(source, tokenizer=TOKENIZER).render(messages)
    assert len(text) > 1_000_000


def test_a_failed_rendering_does_not_count_against_the_next() -> None:
    chat = ChatTemplate("{% for i in range(n) %}{% endfor %}{{ n }}", tokenizer=TOKENIZER)
    for _ in range(3):
        with pytest.raises(ChatTemplateError):
            chat.render(MESSAGES, n=400_000)
        assert chat.render(MESSAGES, n=200_000) == "200000"


def test_renderings_on_many_threads_do_not_share_a_budget() -> None:
    chat = ChatTemplate("{% for i in range(60000) %}{% endfor %}{{ x }}", tokenizer=TOKENIZER)
    results: list[str] = []
    threads = [threading.Thread(target=lambda: results.append(chat.render(MESSAGES, x=1))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["1"] * 8


def test_small_numbers_lists_and_widths_are_no_trouble() -> None:
    assert (
        render("{{ 2 ** 10 }}{{ 3 * 4 }}{{ 'ab' * 3 }}{{ [1] * 2 }}{{ -1 * 'x' }}{{ 'x' * 0 }}") == "102412ababab[1, 1]"
    )
    assert render("{{ 'a'.center(5) }}{{ '%5.2f' % 1.5 }}{{ '{:>4}'.format(7) }}{{ 2 ** -1 }}") == "  a   1.50   70.5"


def test_numbers_and_braces_beside_a_field_are_no_width() -> None:
    assert render("{{ 'in 2024: %s, 10000 %d%%' % ('a', 5) }}") == "in 2024: a, 10000 5%"
    assert render("{{ '{{\"year 2024\": {}}}'.format(1) }}{{ '10000 {0}'.format('x') }}") == '{"year 2024": 1}10000 x'


def test_only_numbers_can_be_summed() -> None:
    assert render("{{ [1, 2.5]|sum }}{{ [{'n': 1}, {'n': 2}]|sum(attribute='n') }}{{ [1]|sum(start=4) }}") == "3.535"
    with pytest.raises(ChatTemplateError, match="sums a list"):
        render("{{ [[1], [2]]|sum(start=[]) }}")


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "nested too deeply"),
        ("{{ 1" + "|string" * 5000 + " }}", "nested too deeply"),
        ("{{ 1" + " + 1" * 5000 + " }}", "nested too deeply"),
        ("{% for i in [1] %}" * 25 + "{% endfor %}" * 25, "does not compile: too many statically nested blocks"),
        ("{% if 1 %}" * 150 + "{% endif %}" * 150, "does not compile: too many levels of indentation"),
        ("{{ " + "9" * 5000 + " }}", "does not compile: Exceeds the limit"),
        ("{% break %}", "does not compile: 'break' outside loop"),
        ("{% macro f(a, a) %}{% endmacro %}", "does not compile: duplicate argument"),
    ],
)
def test_what_only_pythons_compiler_refuses_is_a_typed_error_at_load(source: str, problem: str) -> None:
    with pytest.raises(ChatTemplateError, match=problem):
        ChatTemplate(source, tokenizer=TOKENIZER)


def test_a_turn_of_a_loop_costs_what_its_body_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn that counts 1 whatever it does would let a long body run for hours."""
    monkeypatch.setattr(template_limits, "MAX_WORK", 30_000)
    body, turns = "{% if messages[0].none and messages[0].nothing %}{% endif %}" * 400, "{% for i in range(1000) %}"
    for source in (
        f"{turns}{body}{{% endfor %}}",
        f"{{% macro f() %}}{body}{{% endmacro %}}{turns}{{% set x = f() %}}{{% endfor %}}",
    ):
        with pytest.raises(ChatTemplateError, match="units of work"):
            render(source)
        assert render(source.replace("1000", "100")) == ""


@pytest.mark.parametrize("method", ["center(100000)", "ljust(100000)", "rjust(100000)", "zfill(100000)"])
def test_padding_is_paid_by_its_width(method: str) -> None:
    with pytest.raises(ChatTemplateError, match="units of work"):
        render("{% for i in range(3000) %}{% set x = 'a'." + method + "[:1] %}{% endfor %}")
    assert len(render("{{ 'a'." + method + " }}")) == 100_000


def test_a_long_time_pattern_is_refused() -> None:
    """The C library would try buffers of 256 times its length."""
    with pytest.raises(ChatTemplateError, match="strftime_now a pattern of 1001 characters: limit 1000"):
        render("{{ strftime_now('a' * 1001) }}")
    assert render("{{ strftime_now('a' * 1000)|length }}") == "1000"
