// A regular expression as an automaton of bytes that may be in several places at once.
//
// A pattern has *positions*. One takes a character of its *kind*; others fork without taking any, and one is
// the end. A character is taken byte by byte, through the *stages* of its kind, which all positions of that
// kind share. So a *place* in the pattern is a position and a stage, in one number.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace twostroke {

using ByteClasses = std::array<uint8_t, 256>;  // of each byte the number of its class
constexpr uint8_t kNoClass = 0;                // of bytes that nothing takes
using Label = std::bitset<256>;                // bytes
using Places = std::vector<uint32_t>;

struct PatternPosition {
    static constexpr int32_t kFork = -1;
    static constexpr int32_t kEnd = -2;

    int32_t kind;  // what it takes, or one of these
    int32_t next;
    int32_t other;  // of a fork
};

struct PatternStep {
    static constexpr int32_t kTaken = -1;  // in the place of a stage: the character is whole

    int32_t stage;
    int32_t label;
    int32_t next;
};

class PatternProgram {
  public:
    // `first_stages` is of each kind; the pattern begins at position 0. Steps of one stage have labels that
    // exclude one another. Throws std::invalid_argument where a number points nowhere.
    PatternProgram(std::vector<PatternPosition> positions, std::vector<int32_t> first_stages,
                   const std::vector<PatternStep>& steps, const std::vector<Label>& labels);

    // Bytes that no step tells from one another.
    const ByteClasses& class_of() const { return class_of_; }
    uint32_t num_classes() const { return num_classes_; }

    // Where a pattern is before its first byte, and behind a byte of this class: ascending.
    Places start();
    Places behind(const Places& places, uint8_t byte_class);
    // Places and forks gone through so far.
    uint64_t work() const { return work_; }
    // Whether the text may end there.
    bool ends(const Places& places) const;

  private:
    static constexpr int32_t kNowhere = -2;  // in the place of a stage

    void check(const std::vector<PatternStep>& steps, size_t num_labels) const;
    void find_classes(const std::vector<Label>& labels);
    // Adds the places behind a position's way out, through forks.
    void enter(int32_t position, Places& places);
    uint32_t place(int32_t position, int32_t stage) const {
        return static_cast<uint32_t>(position) * num_stages_ + static_cast<uint32_t>(stage);
    }

    const std::vector<PatternPosition> positions_;
    const std::vector<int32_t> first_stages_;
    uint32_t num_stages_ = 1;
    ByteClasses class_of_{};
    uint32_t num_classes_ = 1;
    std::vector<int32_t> next_stage_;  // [num_stages][num_classes]
    // While places are found: when a position was last entered.
    std::vector<uint64_t> entered_;
    uint64_t turn_ = 0;
    uint64_t work_ = 0;
    std::vector<int32_t> ahead_;
};

}  // namespace twostroke
