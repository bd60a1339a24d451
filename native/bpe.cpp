#include "bpe.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace twostroke {
namespace {

constexpr uint32_t kNowhere = std::numeric_limits<uint32_t>::max();
constexpr uint32_t kNoRule = std::numeric_limits<uint32_t>::max();

// The bytes of the letter a text begins with.
size_t letter_bytes(std::string_view text) {
    const auto first = static_cast<uint8_t>(text[0]);
    const size_t length = first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    return std::min(length, text.size());
}

// A code point below 0x800 as one or two bytes.
std::string utf8_of(unsigned code_point) {
    if (code_point < 0x80) return {static_cast<char>(code_point)};
    return {static_cast<char>(0xC0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 0x3F))};
}

std::invalid_argument no_token(const std::string& where, int32_t id, int32_t num_tokens) {
    return std::invalid_argument(where + " is " + std::to_string(id) + "; the vocabulary has " +
                                 std::to_string(num_tokens) + " tokens");
}

// A piece of what is being merged, in a list linked by positions.
struct Symbol {
    int32_t id;
    uint32_t prev;
    uint32_t next;
    uint32_t rank;     // of the rule that joins it with the next, kNoRule for none
    int32_t joint_id;  // what the two become
};

}  // namespace

// What merging one piece needs; grows to the longest and serves all pieces of a call.
struct BPE::Workspace {
    std::string spelled;
    std::vector<int32_t> letters;
    std::vector<Symbol> symbols;
    std::vector<uint64_t> queue;  // a heap of rank and position, best rule first, then leftmost

    void link_letters();
    // Finds the rule for a symbol and its next one; says whether one was put at the end of the queue.
    bool add_rule(const MergeTable& merges, uint32_t at);
    uint64_t pop();
    // Joins a symbol with its next one.
    void join(uint32_t at);
};

void BPE::Workspace::link_letters() {
    const auto num_letters = static_cast<uint32_t>(letters.size());
    symbols.clear();
    for (uint32_t at = 0; at < num_letters; ++at)
        symbols.push_back({letters[at], at == 0 ? kNowhere : at - 1,
                           at + 1 == num_letters ? kNowhere : at + 1, kNoRule, letters[at]});
}

bool BPE::Workspace::add_rule(const MergeTable& merges, uint32_t at) {
    Symbol& symbol = symbols[at];
    const Merge* merge = symbol.next == kNowhere ? nullptr : merges.find(symbol.id, symbols[symbol.next].id);
    symbol.rank = merge == nullptr ? kNoRule : merge->rank;
    if (merge == nullptr) return false;
    symbol.joint_id = merge->id;
    queue.push_back(static_cast<uint64_t>(merge->rank) << 32 | at);
    return true;
}

uint64_t BPE::Workspace::pop() {
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    const uint64_t best = queue.back();
    queue.pop_back();
    return best;
}

void BPE::Workspace::join(uint32_t at) {
    Symbol& symbol = symbols[at];
    Symbol& gone = symbols[symbol.next];
    symbol.id = symbol.joint_id;
    symbol.next = gone.next;
    gone.rank = kNoRule;  // what is queued for it is void
    if (symbol.next != kNowhere) symbols[symbol.next].prev = at;
}

BPE::BPE(PieceIndex pieces, std::span<const int32_t> rules, BPEOptions options)
    : pieces_(std::move(pieces)), merges_(rules.size() / 3), options_(std::move(options)) {
    if (!options_.spelling.empty() && options_.spelling.size() != 256)
        throw std::invalid_argument("spelling has " + std::to_string(options_.spelling.size()) +
                                    " entries; there are 256 bytes");
    if (options_.unk_id) {
        if (!pieces_.has(*options_.unk_id)) throw no_token("unk_id", *options_.unk_id, pieces_.size());
        options_.unk_id = pieces_.find(pieces_.text(*options_.unk_id));
    }
    for (unsigned code_point = 0; code_point < 0x800; ++code_point)
        short_ids_.push_back(pieces_.find(utf8_of(code_point)));
    for (unsigned byte = 0; byte < 256; ++byte) {
        char name[8];
        std::snprintf(name, sizeof(name), "<0x%02X>", byte & 0xFF);
        byte_ids_.push_back(pieces_.find(name));
    }
    add_rules(rules);
}

void BPE::add_rules(std::span<const int32_t> rules) {
    for (size_t start = 0; start + 3 <= rules.size(); start += 3) {
        const size_t rank = start / 3;
        for (const int32_t id : rules.subspan(start, 3))
            if (!pieces_.has(id))
                throw no_token("an id of merge rule " + std::to_string(rank), id, pieces_.size());
        merges_.add(rules[start], rules[start + 1], {static_cast<uint32_t>(rank), rules[start + 2]});
    }
}

void BPE::encode(std::span<const std::string_view> pieces, std::vector<int32_t>& ids) const {
    Workspace work;
    for (const std::string_view text : pieces) {
        const std::string_view piece = spell(text, work.spelled);
        if (piece.size() >= kNowhere) throw std::length_error("a piece of 4 GiB is too long to merge");
        if (options_.ignore_merges) {
            if (const auto id = pieces_.find(piece)) {
                ids.push_back(*id);
                continue;
            }
        }
        work.letters.clear();
        list_letters(piece, work.letters);
        merge(work, ids);
    }
}

// An unknown letter is written when a known one follows or the piece ends, as the library does it: behind the
// bytes of letters that came between.
void BPE::list_letters(std::string_view piece, std::vector<int32_t>& ids) const {
    bool is_unk_due = false;
    while (!piece.empty()) {
        const std::string_view letter = piece.substr(0, letter_bytes(piece));
        piece.remove_prefix(letter.size());
        if (const auto id = find_letter(letter)) {
            if (is_unk_due) ids.push_back(*options_.unk_id);
            is_unk_due = false;
            ids.push_back(*id);
        } else if (!append_bytes(letter, ids) && options_.unk_id) {
            if (is_unk_due && !options_.fuse_unk) ids.push_back(*options_.unk_id);
            is_unk_due = true;
        }
    }
    if (is_unk_due) ids.push_back(*options_.unk_id);
}

std::string_view BPE::spell(std::string_view piece, std::string& spelled) const {
    if (options_.spelling.empty() && options_.prefix.empty()) return piece;
    spelled = options_.prefix;
    if (options_.spelling.empty()) return spelled += piece;
    for (const char byte : piece) spelled += options_.spelling[static_cast<uint8_t>(byte)];
    return spelled;
}

std::optional<int32_t> BPE::find_letter(std::string_view letter) const {
    const auto first = static_cast<uint8_t>(letter[0]);
    if (letter.size() == 1) return short_ids_[first & 0x7F];
    if (letter.size() == 2) return short_ids_[(first & 0x1F) << 6 | (letter[1] & 0x3F)];
    return pieces_.find(letter);
}

bool BPE::append_bytes(std::string_view letter, std::vector<int32_t>& ids) const {
    if (!options_.byte_fallback) return false;
    const auto id_of = [this](char byte) { return byte_ids_[static_cast<uint8_t>(byte)]; };
    if (!std::all_of(letter.begin(), letter.end(), id_of)) return false;
    for (const char byte : letter) ids.push_back(*id_of(byte));
    return true;
}

void BPE::merge(Workspace& work, std::vector<int32_t>& ids) const {
    if (work.letters.empty()) return;
    work.link_letters();
    work.queue.clear();
    for (uint32_t at = 0; at < work.symbols.size(); ++at) work.add_rule(merges_, at);
    std::make_heap(work.queue.begin(), work.queue.end(), std::greater<>());
    while (!work.queue.empty()) {
        const uint64_t best = work.pop();
        const auto at = static_cast<uint32_t>(best);
        if (work.symbols[at].rank != best >> 32) continue;  // one of the two has been joined otherwise since
        work.join(at);
        for (const uint32_t changed : {work.symbols[at].prev, at})
            if (changed != kNowhere && work.add_rule(merges_, changed))
                std::push_heap(work.queue.begin(), work.queue.end(), std::greater<>());
    }
    for (uint32_t at = 0; at != kNowhere; at = work.symbols[at].next) ids.push_back(work.symbols[at].id);
}

}  // namespace twostroke
