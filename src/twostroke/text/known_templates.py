"""Chat templates for models whose file has none, recognised by the turn markers in their vocabulary.

Only formats that a model family has published and that its markers give away. Called where a model is
loaded; a template in the file always comes first.
"""

import logging

from twostroke.text.tokenizer import Tokenizer

# Gemma knows the turns user and model; instructions go before the first user text.
_GEMMA = """\
{{ bos_token }}
{%- set ns = namespace(before='') -%}
{%- for message in messages -%}
    {%- if message.content is string -%}
        {%- set text = message.content | trim -%}
    {%- else -%}
        {%- set text = message.content | map(attribute='text') | join | trim -%}
    {%- endif -%}
    {%- if message.role in ['system', 'developer'] -%}
        {%- set ns.before = ns.before ~ text ~ '\\n\\n' -%}
    {%- elif message.role in ['user', 'assistant'] -%}
        {{- '<start_of_turn>' ~ ('model' if message.role == 'assistant' else 'user') ~ '\\n' ~ ns.before ~ text }}
        {{- '<end_of_turn>\\n' -}}
        {%- set ns.before = '' -%}
    {%- else -%}
        {{ raise_exception('Gemma has no role ' ~ message.role ~ ', only system, user and assistant') }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ '<start_of_turn>model\\n' }}
{%- endif -%}
"""
_BY_MARKERS = {("<start_of_turn>", "<end_of_turn>"): ("Gemma", _GEMMA)}


def known_template(tokenizer: Tokenizer) -> str | None:
    """The template of the family these control tokens belong to, with a warning; None for no known one."""
    for markers, (family, source) in _BY_MARKERS.items():
        if all(tokenizer.control.id_of(marker) is not None for marker in markers):
            logging.getLogger("twostroke").warning(
                "the model has no chat template; its turn markers are %s's, so %s's format is used", family, family
            )
            return source
    return None
