// Byte-pair encoding (Sennrich et al. 2016): the letters of a piece joined by rules, best rule first and
// leftmost where a rule applies twice. Ids equal those of the BPE model of the tokenizers library.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "merge_table.h"
#include "piece_index.h"

namespace twostroke {

struct BPEOptions {
    std::vector<std::string> spelling;  // [256], how the vocabulary writes each byte; none: as it is
    std::string prefix;                 // what each piece begins with, as the vocabulary writes it
    std::optional<int32_t> unk_id;      // stands for a letter that is no token
    bool byte_fallback = false;         // such a letter is its bytes, where each has a token <0xNN>
    bool fuse_unk = false;              // one unknown token for a run of such letters
    bool ignore_merges = false;         // a piece that is a token is that token, whatever the rules say
};

// Immutable, so any number of threads may encode with it.
class BPE {
  public:
    // `rules` holds three ids each, of the left, the right and the joint piece, best rule first; ids of equal
    // pieces are the lowest. Throws std::invalid_argument with an id that is none.
    BPE(PieceIndex pieces, std::span<const int32_t> rules, BPEOptions options);

    // Appends the ids of each piece, UTF-8, one after the other. Time goes as the length of a piece times
    // its logarithm. Throws std::length_error for a piece of 4 GiB.
    void encode(std::span<const std::string_view> pieces, std::vector<int32_t>& ids) const;

    const PieceIndex& pieces() const { return pieces_; }

  private:
    struct Workspace;

    void add_rules(std::span<const int32_t> rules);
    std::optional<int32_t> find_letter(std::string_view letter) const;
    std::string_view spell(std::string_view piece, std::string& spelled) const;
    void list_letters(std::string_view piece, std::vector<int32_t>& ids) const;
    bool append_bytes(std::string_view letter, std::vector<int32_t>& ids) const;
    void merge(Workspace& work, std::vector<int32_t>& ids) const;

    PieceIndex pieces_;
    MergeTable merges_;
    BPEOptions options_;
    std::vector<std::optional<int32_t>> short_ids_;  // [2048], by code point
    std::vector<std::optional<int32_t>> byte_ids_;   // [256], of the tokens <0xNN>
};

}  // namespace twostroke
