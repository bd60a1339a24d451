"""Generates lines of text that tokenizers disagree about: mixed scripts, code, emoji, odd spaces, numbers.

Own material, the same lines for the same seed on every machine.
"""

import random

WORDS = {
    "english": [
        "the",
        "cat",
        "didn't",
        "WE'LL",
        "they're",
        "I'm",
        "sat",
        "on",
        "a",
        "mat;",
        "however,",
        "running-fast",
        "co-operate",
        "e.g.",
        "U.S.A.",
        "naïve",
        "café",
    ],
    "german": [
        "der",
        "Bär",
        "läuft",
        "über",
        "die",
        "Straße,",
        "weil",
        "Äpfel",
        "größer",
        "sind",
        "als",
        "Öl",
        "Überraschung",
        "Donaudampfschiff",
    ],
    "french": ["l'été", "où", "ça", "s'arrête", "n'est-ce", "pas", "très", "élève", "œuvre", "çà", "aujourd'hui"],
    "russian": ["привет", "мир", "ёлка", "объект", "съешь", "ещё", "этих", "мягких", "французских", "булок"],
    "greek": ["καλημέρα", "κόσμε", "άνθρωπος", "ψυχή", "Ελλάδα", "ΑΒΓ"],
    "chinese": ["你好", "世界", "今天天气很好", "我们去公园吧", "人工智能", "北京大学", "，。！"],
    "japanese": ["こんにちは", "世界", "カタカナ", "ひらがな", "東京タワー", "食べました", "ー", "。、"],
    "korean": ["안녕하세요", "세계", "한국어", "텍스트", "대한민국", "ㅋㅋㅋ"],
    "arabic": ["مرحبا", "بالعالم", "كتاب", "السَّلامُ", "عليكم", "١٢٣", "٤٥٦"],
    "hebrew": ["שלום", "עולם", "ספר", "יוֹם", "טוב"],
    "hindi": ["नमस्ते", "दुनिया", "किताब", "क्षत्रिय", "१२३", "हिन्दी"],
    "thai": ["สวัสดีชาวโลก", "ภาษาไทย", "๑๒๓", "กำลัง"],
    "tamil": ["வணக்கம்", "உலகம்", "தமிழ்", "நன்றி"],
    "vietnamese": ["Xin", "chào", "thế", "giới", "tiếng", "Việt", "đường", "phố"],
    "turkish": ["İstanbul", "ışık", "ağaç", "çok", "güzel", "şehir", "ĞÜŞİÖÇ"],
    "amharic": ["ሰላም", "ዓለም", "አማርኛ"],
    "math": ["∑", "∫", "√2", "≠", "≤", "π≈3.14159", "x²", "H₂O", "½", "Ⅷ", "⅓", "𝔸", "𝟙", "𝒳"],
    "combining": ["Cafe\u0301", "n\u0303", "a\u0308\u0301", "e\u20dd", "Z\u0351\u036b", "\u0301", "o\u0327"],
    "emoji": ["😀", "👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇫🇷🇯🇵", "❤️", "☕", "🤖🤖🤖", "1️⃣", "🫠", "✨"],
}
CODE = (
    "def f(x: int) -> str:",
    "    return x**2 + y[3:-1]  # note",
    "\tif (a && b || !c) { i++; }",
    "for(int i=0;i<100;++i)",
    "#include <vector>",
    "std::vector<std::string> v{\"a\", 'b'};",
    'print(f"{x!r:>10}\\n")',
    "x=1;\n\n\ty",
    "SELECT * FROM t WHERE id='7';",
    '<div class="row">\r\n\t<p>&nbsp;</p>\r\n</div>',
    '{"key": [1, 2.5e-3, null, true]}',
    "a->b::c<T>(d)?e:f",
    "$HOME/.config/*.toml",
    "https://example.org/a_b-c?q=1&r=%20#top",
    "user.name+tag@example.com",
    "λx.λy.x",
    "0xDEADBEEF 0b1010 1_000_000",
    "__init__ camelCase snake_case HTTPServer2Go",
    "/* comment */ // another",
    "\\alpha_{i}^{2} \\frac{1}{2}",
    "--flag=value -x",
    "`code` **bold** _it_ ~~no~~",
    "</s><|im_start|>system\nobey<|im_end|>",
    "<|endoftext|>",
    "<start_of_turn>user\nhi<end_of_turn>",
    "[INST] x [/INST]",
    "<0x0A> <unk> <s>",
    "<think>\n\n</think>",
)
SPACES = (
    " ",
    "  ",
    "   ",
    "\t",
    "\t\t",
    "\n",
    "\n\n",
    "\r\n",
    " \n ",
    "\n \n",
    "\u00a0",
    "\u3000",
    "\u2003",
    "\u200b",
    "\u202f",
    "\u2028",
    "\x0b",
    "\x0c",
    "\u0085",
    "        ",
    " " * 17,
    "\n" * 5,
    "\t \t",
    "\ufeff",
    "\u200d",
    "\u00ad",
    "▁",
    "▁▁",
)
PUNCTUATION = (
    "...",
    "!?",
    "—",
    "–",
    "“x”",
    "«y»",
    "¿",
    "¡",
    "…",
    "·",
    "•",
    "†",
    "§",
    "©",
    "™",
    "€5",
    "$3.50",
    "£",
    "¥",
    "%",
    "&&",
    "'",
    '"',
    "''",
    "`",
    "~",
    "^",
    "|",
    "¦",
)
NUMBERS = (
    "0",
    "7",
    "12",
    "123",
    "1234",
    "12345",
    "3333+777",
    "1234567 12 1",
    "3.14",
    "1,000,000",
    "-5",
    "1e10",
    "٣٤٥",
    "५६",
    "２０２４",
    "²³",
    "Ⅻ",
    "1st",
    "2nd",
    "v2.0.1",
    "2024-05-06T07:08:09Z",
)


def _random_char(rng: random.Random) -> str:
    low, high = rng.choice(
        (
            (0x20, 0x7E),
            (0xA0, 0x24F),
            (0x250, 0x5FF),
            (0x900, 0xDFF),
            (0x1E00, 0x2BFF),
            (0x3040, 0x9FFF),
            (0xAC00, 0xD7A3),
            (0xE000, 0xFFFD),
            (0x10000, 0x1FAFF),
            (0x20000, 0x2FFFF),
        )
    )
    return chr(rng.randint(low, high))


def _piece(rng: random.Random) -> str:
    kind = rng.randrange(10)
    if kind < 5:
        words = rng.choice(tuple(WORDS.values()))
        return " ".join(rng.choice(words) for _ in range(rng.randint(1, 6)))
    if kind == 5:
        return rng.choice(CODE)
    if kind == 6:
        return rng.choice(NUMBERS)
    if kind == 7:
        return rng.choice(PUNCTUATION)
    if kind == 8:
        return "".join(_random_char(rng) for _ in range(rng.randint(1, 6)))
    return rng.choice("abX 1.-=_*#'é字🙂") * rng.randint(1, 40)


def _line(rng: random.Random) -> str:
    text = "" if rng.random() < 0.7 else rng.choice(SPACES)
    for _ in range(rng.randint(1, 6)):
        separator = " " if rng.random() < 0.6 else "" if rng.random() < 0.4 else rng.choice(SPACES)
        text += _piece(rng) + separator
    return text if rng.random() < 0.3 else text.rstrip(" ")


def text_lines(count: int = 10_000, *, seed: int = 0) -> list[str]:
    """`count` lines; the first ones are the known trouble makers."""
    rng = random.Random(seed)
    known = [
        "3333+777",
        "1234567 12 1",
        "don't DON'T",
        "x=1;\n\n\ty",
        "  three   spaces",
        "Cafe\u0301",
        "\u0661\u0662\u0663",
        "\n\n\n\n",
        *CODE,
        *SPACES,
        *NUMBERS,
    ]
    return (known + [_line(rng) for _ in range(count)])[:count]
