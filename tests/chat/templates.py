"""Templates of our own with the marks of each family: what a test renders, and what a puppet's answers are read by."""

HERMES = """\
{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}Answer with <tool_call>{"name": ..., "arguments": ...}</tool_call>.<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}<|im_start|>user
<tool_response>{{ message.content }}</tool_response><|im_end|>
{% else %}<|im_start|>{{ message.role }}
{% if message.content %}{{ message.content }}{% endif %}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
# As Qwen3's: the answer opens its reasoning itself, unless the prompt closes it at once.
THINKING = HERMES.replace(
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "{%- if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}",
)
# As DeepSeek's: the prompt opens the reasoning.
OPENED = HERMES.replace(
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "{%- if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}",
).replace("{{ message.content }}{% endif %}", "{{ message.content.split('</think>')[-1] }}{% endif %}")
LLAMA = """\
{%- for message in messages %}<|start_header_id|>{{ message.role }}<|end_header_id|>

{% if message.role == 'user' and loop.first and tools %}{% for tool in tools %}{{ tool | tojson }}
{% endfor %}{% endif %}
{%- if message.tool_calls %}{% set call = message.tool_calls[0].function -%}
{"name": "{{ call.name }}", "parameters": {{ call.arguments | tojson }}}
{%- else %}{{ message.content }}{% endif %}<|eot_id|>
{%- endfor %}
{%- if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>

{% endif %}"""
MISTRAL = """\
{%- for message in messages %}
{%- if message.role == 'user' %}
{%- if tools and loop.last %}[AVAILABLE_TOOLS] {{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif -%}
[INST] {{ message.content }}[/INST]
{%- elif message.tool_calls %}[TOOL_CALLS] [{% for call in message.tool_calls %}
{%- if call.id | length != 9 %}{{ raise_exception('ids of calls have 9 letters') }}{% endif %}
{{- call.function | tojson }}{{ ', ' if not loop.last }}{% endfor %}]
{%- elif message.role == 'tool' %}[TOOL_RESULTS] {"content": {{ message.content }}, {# -#}
"call_id": "{{ message.tool_call_id }}"}[/TOOL_RESULTS]
{%- else %} {{ message.content }}{% endif %}
{%- endfor %}"""
MISTRAL_NAMED = MISTRAL.replace(
    "{{- call.function | tojson }}{{ ', ' if not loop.last }}",
    "{{- call.function.name }}[ARGS]{{ call.function.arguments | tojson }}",
)
GRANITE = """\
{%- if tools %}<|start_of_role|>tools<|end_of_role|>{{ tools | tojson(indent=4) }}<|end_of_text|>
Begin a call with <|tool_call|> and a list of calls.
{% endif %}
{%- for message in messages %}<|start_of_role|>{{ message.role }}<|end_of_role|>
{{- message.content or '' }}
{%- if message.tool_calls %}<|tool_call|>{{ message.tool_calls | map(attribute='function') | list | tojson }}
{%- endif %}<|end_of_text|>
{% endfor %}
{%- if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}"""
NEMOTRON = HERMES.replace("<tool_call>", "<TOOLCALL>").replace("</tool_call>", "</TOOLCALL>")
# As some have it: arguments are joined as text, and a call is known by its content that is null.
TEXT_ARGUMENTS = """\
{%- if tools %}{{ tools | tojson }}{% endif %}
{%- for message in messages %}
{%- if message.role == 'assistant' and message.content is none %}
{%- for call in message.tool_calls %}<tool_call>{{ call.function.name + ' ' + call.function.arguments }}</tool_call>
{%- endfor %}
{%- else %}{{ message.role + ': ' + message.content }}{% endif %}
{%- endfor %}"""
PLAIN = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
