"""Token ids to text as they come: one Detokenizer per sequence.

Holds back the bytes of an unfinished character; everything else is shown at once. Cost per token does
not depend on what came before. Called by the engine's streams.
"""

import codecs
from collections.abc import Collection

from twostroke.text.spelling import Spelling
from twostroke.text.tokenizer import Tokenizer


class Detokenizer:
    """Streams one sequence: the joined results of `push` and `flush` equal `Tokenizer.decode` of all ids.

    `shown_ids` are control tokens whose literals are shown whatever `skip_control` says.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        skip_control: bool = True,
        is_continuation: bool = False,
        shown_ids: Collection[int] = (),
    ) -> None:
        self._spelling = Spelling(
            tokenizer.vocabulary,
            rule=tokenizer.space_rule,
            skip_control=skip_control,
            is_continuation=is_continuation,
            shown_ids=shown_ids,
        )
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """The text that became showable with this token, perhaps none."""
        return self._decoder.decode(self._spelling.next_bytes(token_id))

    def flush(self) -> str:
        """What is still held back, at the end: an unfinished character is U+FFFD."""
        return self._decoder.decode(b"", final=True)
