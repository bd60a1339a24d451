// What a head hands on where not every logit of a row is looked at: the panels the next token is drawn from.
// program/reference.py has the definition.
//
// The best k tokens lie in the best k panels, ranked by their largest logit and their number: every panel
// before that of a token holds a token before it. A mask leaves logits out of the ranking. What else changes
// a logit before anyone chooses is the sampler's: a panel ranks by its other tokens. One that has such a
// token is kept beside the k: always if logits may rise, else where it would rank before the last of the k as
// it is.
//
// Panels come from any thread in any order, and what is found in the end does not depend on it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "kernels/sample.h"
#include "rank.h"

namespace twostroke {

class Candidates {
  public:
    Candidates(int32_t vocab_size, int32_t num_threads);

    // A new step: all logits of every row are wanted, until less is.
    void begin(int32_t num_rows);
    // The best `k` tokens are enough, of those whose bit is set; no words: of all. At most most().
    void want(int32_t row, int32_t k, const std::vector<uint32_t>& allowed);
    // The logit of this token may be changed.
    void watch(int32_t row, int32_t id);
    // It may also rise.
    void keep_watched(int32_t row) { rows_[row].keeps_watched = true; }
    // After the last wish: makes room for what will come.
    void make_room();

    // By the head's threads: the logits of one panel, [num_rows][kPanelRows]. Allocates nothing.
    void take(const SampleKernels& kernels, int worker, int32_t panel, int32_t first_row, int32_t num_rows,
              const float* tile);

    struct FoundPanel {
        uint64_t rank;
        const float* logits;

        int32_t number() const { return id_of(rank); }
    };
    // Once all panels came: those that were kept, in no order; `out` is overwritten.
    void find(int32_t row, std::vector<FoundPanel>& out) const;
    // The largest logit of the row, allowed or not; NaN where one is.
    float top(int32_t row) const;

    // A ranking of more panels would cost what it saves.
    int32_t most() const { return std::clamp(num_panels_ / 24, 64, 128); }
    int32_t vocab_size() const { return vocab_size_; }
    int32_t num_panels() const { return num_panels_; }
    // Logits of a panel that are of the vocabulary.
    int32_t width(int32_t panel) const { return std::min(kPanelRows, vocab_size_ - panel * kPanelRows); }
    int32_t num_threads() const { return static_cast<int32_t>(finders_.size()); }
    int32_t num_rows() const { return num_rows_; }
    bool wants_all(int32_t row) const { return rows_[row].k == 0; }
    // Rows of which every logit is wanted, ascending.
    const std::vector<int32_t>& whole_rows() const { return whole_rows_; }
    size_t memory_bytes() const;

  private:
    static constexpr uint64_t kNoRank = std::numeric_limits<uint64_t>::max();

    struct Row {
        int32_t k = 0;  // 0: every logit
        bool keeps_watched = false;
        std::vector<uint32_t> allowed;
        size_t first_entry = 0;
        std::vector<int32_t> watched;  // panels
        std::vector<int32_t>
            place_of;  // per panel: where it is in `watched`, or -1; empty until the row watches
        std::vector<uint32_t> changed;  // a bit for each of their tokens
        std::vector<uint64_t> ranks;    // of watched panels; kNoRank: not kept
        std::vector<float> logits;

        uint32_t allowed_in(int32_t panel) const {
            const auto word = static_cast<size_t>(panel);
            return allowed.empty() ? ~uint32_t{0} : word < allowed.size() ? allowed[word] : 0;
        }
        int32_t place(int32_t panel) const { return place_of.empty() ? -1 : place_of[panel]; }
    };
    struct Entry {
        uint64_t rank;
        int32_t place;  // of its logits, which stay where they are; no two entries have one place
    };
    struct Found {
        int32_t num_entries = 0;
        bool has_nan = false;
        float top = -std::numeric_limits<float>::infinity();
    };
    // What one thread found. Cache lines of its own, as in pool.h.
    struct alignas(128) Finder {
        std::vector<float> bars;  // per row: a panel below it is not looked at
        std::vector<int32_t> hits;
        std::vector<float> largest;  // per hit
        std::vector<Found> found;    // per row
        std::vector<Entry> entries;  // 2 * k per row
        std::vector<float> logits;   // a panel per entry
    };

    void consider(const SampleKernels& kernels, Finder& finder, int32_t row, int32_t panel, float largest,
                  const float* logits);
    void keep(Finder& finder, int32_t row, uint64_t rank, const float* logits);
    void keep_aside(Row& wish, int32_t place, uint64_t rank, const float* logits);
    void lower_limit(int32_t row, uint64_t rank);

    const int32_t vocab_size_;
    const int32_t num_panels_;
    int32_t num_rows_ = 0;
    std::vector<Row> rows_;
    std::vector<int32_t> whole_rows_;
    std::vector<int32_t> keeping_rows_;
    std::vector<Finder> finders_;
    // Per row: k panels rank up to here, so none behind it is needed. Threads tell each other.
    std::unique_ptr<std::atomic<uint64_t>[]> limits_;
};

}  // namespace twostroke
