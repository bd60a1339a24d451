"""Pre-tokenizers of byte-level BPE models by the name GGUF files give them in `tokenizer.ggml.pre`.

The patterns are those the models were trained with, as their tokenizer.json files state them. Used by
the GGUF builder only; a Hugging Face folder brings its own pre-tokenizer.
"""

import logging
from dataclasses import dataclass

from tokenizers import Regex, pre_tokenizers
from tokenizers.pre_tokenizers import PreTokenizer

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_LLAMA3 = rf"{_CONTRACTION}|{_WORD}|\p{{N}}{{1,3}}|{_SYMBOLS}|{_SPACES}"
_QWEN2 = rf"{_CONTRACTION}|{_WORD}|\p{{N}}|{_SYMBOLS}|{_SPACES}"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = (
    r"[^\r\n\p{L}\p{N}]?" + f"{_UPPER}*{_LOWER}+" + "{tail}" + r"|[^\r\n\p{L}\p{N}]?" + f"{_UPPER}+{_LOWER}*{{tail}}"
)
_CASED_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_TEKKEN = rf"{_CASED.replace('{tail}', '')}|\p{{N}}|{_CASED_SYMBOLS}|{_SPACES}"
_GPT4O = rf"{_CASED.replace('{tail}', _CONTRACTION + '?')}|\p{{N}}{{1,3}}|{_CASED_SYMBOLS}|{_SPACES}"
_BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"
_DEEPSEEK3_WORD = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
)
_DIGIT_THEN_GPT2 = (r"\p{N}", _GPT2)


@dataclass(frozen=True, slots=True)
class PreTokenizerRecipe:
    """Patterns applied one after the other, each cutting what the one before left.

    `ignore_merges`: a piece that is a token as a whole is that token, whatever the merges say.
    `add_bos`: the model wants a BOS where the file does not say.
    """

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False

    def build(self) -> PreTokenizer:
        """Cuts only: how bytes are spelled is the model's business, which is faster at it."""
        return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(it), behavior="isolated") for it in self.patterns])


_RECIPES = {
    PreTokenizerRecipe((_GPT2,)): (
        *("gpt-2", "phi-2", "mpt", "olmo", "roberta-bpe", "jina-v2-code", "jina-v2-es", "jina-v2-de", "jina-v1-en"),
        *("gigachat", "a.x-4.0", "exaone4", "mellum", "trillion"),
    ),
    PreTokenizerRecipe(_DIGIT_THEN_GPT2): (
        *("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"),
    ),
    PreTokenizerRecipe((_LLAMA3,), ignore_merges=True, add_bos=True): (
        *("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2", "midm-2.0"),
    ),
    PreTokenizerRecipe((_LLAMA3,)): ("dbrx", "smaug-bpe", "chatglm-bpe"),
    PreTokenizerRecipe((_LLAMA3,), ignore_merges=True): ("glm4",),
    PreTokenizerRecipe((_QWEN2,)): ("qwen2", "deepseek-r1-qwen", "stablelm2", "megrez", "kormo"),
    PreTokenizerRecipe((_TEKKEN,), ignore_merges=True, add_bos=True): ("tekken",),
    PreTokenizerRecipe((_GPT4O,)): ("gpt-4o", "llama4"),
    PreTokenizerRecipe((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")): ("falcon",),
    PreTokenizerRecipe((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")): ("default",),
    PreTokenizerRecipe((_BLOOM,)): ("bloom", "gpt3-finnish", "poro-chat"),
    PreTokenizerRecipe((_BLOOM, r"\p{N}")): ("viking",),
    PreTokenizerRecipe((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}")): ("deepseek-coder",),
    PreTokenizerRecipe((r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", _DEEPSEEK3_WORD)): ("deepseek-v3", "hunyuan-dense"),
}
RECIPES = {name: recipe for recipe, names in _RECIPES.items() for name in names}
FALLBACK = "default"


def recipe_for(name: str) -> PreTokenizerRecipe:
    """The recipe of this name; an unknown name gets the fallback and a warning that says so."""
    recipe = RECIPES.get(name)
    if recipe is None:
        logging.getLogger("twostroke").warning(
            "pre-tokenizer %r is unknown, %r is used instead: words and digits may be cut differently than in "
            "training and answers may get worse; known are %s",
            name,
            FALLBACK,
            ", ".join(sorted(RECIPES)),
        )
        return RECIPES[FALLBACK]
    return recipe
