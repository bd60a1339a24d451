"""A conversation and all that goes beside it, read from a body: tools, reasoning, what the template is told.

Called by every route that takes `messages`. What the model's own template cannot do is refused later, by LLM.
"""

from twostroke.chat.chat import Chat
from twostroke.errors import ParamsError
from twostroke.serve.api_error import ApiError
from twostroke.serve.body import MAX_SHOWN, cut
from twostroke.serve.fields import Fields
from twostroke.serve.messages import read_messages


def read_chat(fields: Fields) -> Chat:
    """Raises ApiError at the place of the first mistake."""
    if fields.look_at("chat_template") is not None:
        raise ApiError(
            "chat_template is refused: the model's own template is used, a request brings none (send a rendered "
            "prompt to /v1/completions instead)",
            param="chat_template",
            code="unknown_field",
        )
    parallel = fields.flag("parallel_tool_calls")
    variables = fields.object("chat_template_kwargs")
    try:
        return Chat.read(
            read_messages(fields),
            tools=fields.array("tools"),
            tool_choice=fields.take("tool_choice"),
            parallel_tool_calls=True if parallel is None else parallel,
            reasoning_effort=fields.text("reasoning_effort"),
            chat_template_kwargs=None if variables is None else variables.values(),
            add_generation_prompt=fields.flag("add_generation_prompt"),
            continue_final_message=fields.flag("continue_final_message") or False,
        )
    except ParamsError as error:
        raise ApiError(cut(str(error), 4 * MAX_SHOWN), param=error.field) from None
