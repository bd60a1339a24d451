#include "candidates.h"

#include <cmath>

namespace twostroke {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

constexpr uint32_t kAll = std::numeric_limits<uint32_t>::max();

// The largest of the logits whose bits are set; none is NaN.
float largest_of(const SampleKernels& kernels, const float* logits, int32_t width, uint32_t bits) {
    if (bits == 0) return -kInfinity;
    float kept[kPanelRows];
    const float* const block = kept;
    float largest = 0;
    kernels.keep(logits, width, bits, kept);
    kernels.maxima({&block, width}, &largest);
    return largest;
}

constexpr auto kRanksBefore = [](const auto& a, const auto& b) { return a.rank < b.rank; };

}  // namespace

Candidates::Candidates(int32_t vocab_size, int32_t num_threads)
    : vocab_size_(vocab_size),
      num_panels_((vocab_size + kPanelRows - 1) / kPanelRows),
      finders_(num_threads) {}

void Candidates::begin(int32_t num_rows) {
    for (Row& row : rows_) {
        row.k = 0;
        row.keeps_watched = false;
        row.allowed.clear();
        for (const int32_t panel : row.watched) row.place_of[panel] = -1;
        row.watched.clear();
        row.changed.clear();
    }
    if (static_cast<size_t>(num_rows) > rows_.size()) {
        rows_.resize(num_rows);
        limits_ = std::make_unique<std::atomic<uint64_t>[]>(num_rows);
    }
    num_rows_ = num_rows;
}

void Candidates::want(int32_t row, int32_t k, const std::vector<uint32_t>& allowed) {
    rows_[row].k = k;
    rows_[row].allowed = allowed;
}

void Candidates::watch(int32_t row, int32_t id) {
    if (id < 0 || id >= vocab_size_) return;
    Row& wish = rows_[row];
    if (wish.place_of.empty()) wish.place_of.assign(num_panels_, -1);
    int32_t& place = wish.place_of[id / kPanelRows];
    if (place < 0) {
        place = static_cast<int32_t>(wish.watched.size());
        wish.watched.push_back(id / kPanelRows);
        wish.changed.push_back(0);
    }
    wish.changed[place] |= uint32_t{1} << id % kPanelRows;
}

void Candidates::make_room() {
    size_t num_entries = 0;
    whole_rows_.clear();
    keeping_rows_.clear();
    for (int32_t i = 0; i < num_rows_; ++i) {
        Row& row = rows_[i];
        row.first_entry = num_entries;
        num_entries += 2 * static_cast<size_t>(row.k);
        limits_[i].store(kNoRank, std::memory_order_relaxed);
        row.ranks.assign(row.watched.size(), kNoRank);
        const size_t num_floats = row.watched.size() * kPanelRows;
        if (row.logits.size() < num_floats) row.logits.resize(num_floats);
        if (row.k == 0) whole_rows_.push_back(i);
        if (row.keeps_watched && !row.watched.empty()) keeping_rows_.push_back(i);
    }
    for (Finder& finder : finders_) {
        finder.bars.resize(num_rows_);
        for (int32_t i = 0; i < num_rows_; ++i) finder.bars[i] = rows_[i].k == 0 ? kInfinity : -kInfinity;
        finder.hits.resize(num_rows_);
        finder.largest.resize(num_rows_);
        finder.found.assign(num_rows_, Found());
        while (finder.entries.size() < num_entries)
            finder.entries.push_back({0, static_cast<int32_t>(finder.entries.size())});
        finder.logits.resize(finder.entries.size() * kPanelRows);
    }
}

void Candidates::take(const SampleKernels& kernels, int worker, int32_t panel, int32_t first_row,
                      int32_t num_rows, const float* tile) {
    if (panel >= num_panels_) return;  // padding of the head
    for (const int32_t row : keeping_rows_) {
        if (row < first_row || row >= first_row + num_rows) continue;
        const int32_t place = rows_[row].place(panel);
        if (place >= 0)
            keep_aside(rows_[row], place, static_cast<uint64_t>(panel),
                       tile + (row - first_row) * kPanelRows);
    }
    Finder& finder = finders_[worker];
    int32_t* const hits = finder.hits.data() + first_row;
    float* const largest = finder.largest.data() + first_row;
    const int32_t num_hits = kernels.reach(tile, kPanelRows, num_rows, width(panel),
                                           finder.bars.data() + first_row, hits, largest);
    for (int32_t i = 0; i < num_hits; ++i)
        consider(kernels, finder, first_row + hits[i], panel, largest[i], tile + hits[i] * kPanelRows);
}

// A panel that reaches the row's bar. The row's largest logit is in one of these: no bar is above it.
void Candidates::consider(const SampleKernels& kernels, Finder& finder, int32_t row, int32_t panel,
                          float largest, const float* logits) {
    Row& wish = rows_[row];
    Found& found = finder.found[row];
    if (wish.k == 0) return;
    if (std::isnan(largest)) {
        found.has_nan = true;
        return;
    }
    found.top = std::max(found.top, largest);
    const uint32_t allowed = wish.allowed_in(panel);
    if (allowed != kAll) largest = largest_of(kernels, logits, width(panel), allowed);
    if (largest == -kInfinity) return;
    const uint64_t limit = limits_[row].load(std::memory_order_relaxed);
    uint64_t rank = rank_of(largest, panel);
    if (rank > limit) {
        finder.bars[row] = std::max(finder.bars[row], logit_of(limit));
        return;
    }
    if (const int32_t place = wish.place(panel); place >= 0) {
        if (!wish.keeps_watched) keep_aside(wish, place, rank, logits);
        largest = largest_of(kernels, logits, width(panel), allowed & ~wish.changed[place]);
        rank = rank_of(largest, panel);
        if (largest == -kInfinity || rank > limit) return;
    }
    keep(finder, row, rank, logits);
}

void Candidates::keep(Finder& finder, int32_t row, uint64_t rank, const float* logits) {
    const int32_t k = rows_[row].k;
    Found& found = finder.found[row];
    Entry* const entries = finder.entries.data() + rows_[row].first_entry;
    Entry& entry = entries[found.num_entries++];
    entry.rank = rank;
    std::copy_n(logits, kPanelRows, finder.logits.data() + static_cast<size_t>(entry.place) * kPanelRows);
    if (found.num_entries == 2 * k) {
        std::nth_element(entries, entries + (k - 1), entries + 2 * k, kRanksBefore);
        found.num_entries = k;
    } else if (found.num_entries != k) {
        return;
    }
    lower_limit(row, std::max_element(entries, entries + k, kRanksBefore)->rank);
    finder.bars[row] = logit_of(limits_[row].load(std::memory_order_relaxed));
}

void Candidates::keep_aside(Row& wish, int32_t place, uint64_t rank, const float* logits) {
    wish.ranks[place] = rank;
    std::copy_n(logits, kPanelRows, wish.logits.data() + static_cast<size_t>(place) * kPanelRows);
}

void Candidates::lower_limit(int32_t row, uint64_t rank) {
    uint64_t limit = limits_[row].load(std::memory_order_relaxed);
    while (rank < limit && !limits_[row].compare_exchange_weak(limit, rank, std::memory_order_relaxed)) {
    }
}

void Candidates::find(int32_t row, std::vector<FoundPanel>& out) const {
    const Row& wish = rows_[row];
    const auto k = static_cast<size_t>(wish.k);
    uint64_t limit = limits_[row].load(std::memory_order_relaxed);
    out.clear();
    for (const Finder& finder : finders_)
        for (int32_t i = 0; i < finder.found[row].num_entries; ++i) {
            const Entry& entry = finder.entries[wish.first_entry + i];
            if (entry.rank <= limit)
                out.push_back(
                    {entry.rank, finder.logits.data() + static_cast<size_t>(entry.place) * kPanelRows});
        }
    if (out.size() > k) {
        std::nth_element(out.begin(), out.begin() + (k - 1), out.end(), kRanksBefore);
        out.resize(k);
    }
    if (out.size() == k) limit = std::max_element(out.begin(), out.end(), kRanksBefore)->rank;
    std::erase_if(out, [&](const FoundPanel& panel) { return wish.place(panel.number()) >= 0; });
    for (size_t i = 0; i < wish.watched.size(); ++i)
        if (wish.ranks[i] != kNoRank && (wish.keeps_watched || wish.ranks[i] <= limit))
            out.push_back({wish.ranks[i], wish.logits.data() + i * kPanelRows});
}

float Candidates::top(int32_t row) const {
    float top = -kInfinity;
    for (const Finder& finder : finders_) {
        if (finder.found[row].has_nan) return std::numeric_limits<float>::quiet_NaN();
        top = std::max(top, finder.found[row].top);
    }
    return top;
}

size_t Candidates::memory_bytes() const {
    size_t total = 0;
    for (const Row& row : rows_)
        total += row.logits.size() * sizeof(float) +
                 row.ranks.size() * (sizeof(uint64_t) + sizeof(uint32_t)) +
                 (row.place_of.size() + row.watched.size() + row.allowed.size()) * sizeof(int32_t);
    for (const Finder& finder : finders_)
        total += finder.logits.size() * sizeof(float) + finder.entries.size() * sizeof(Entry) +
                 finder.found.size() * (sizeof(Found) + 2 * sizeof(float) + sizeof(int32_t));
    return total;
}

}  // namespace twostroke
