// Where one text is in a pattern.
#pragma once

#include <cstdint>
#include <memory>

#include "pattern.h"

namespace twostroke {

class PatternPlace {
  public:
    // Before the first token. Masks are shared with other texts.
    explicit PatternPlace(std::shared_ptr<Pattern> pattern);

    // Whether one byte alone may come.
    bool is_forced() { return !has_ended_ && pattern_->is_forced(state()); }
    // Tokens that may come; behind an end token those alone. Good until the next call. Throws
    // std::domain_error where none may, and std::length_error where the pattern is too much.
    const MaskWords& mask();
    void advance(int32_t id);
    const Pattern& pattern() const { return *pattern_; }

  private:
    // Its number in the age of now.
    uint32_t state();
    void be_at(uint32_t state);

    std::shared_ptr<Pattern> pattern_;
    uint32_t state_ = 0;
    Places places_;  // of that state, for ages to come
    uint64_t age_ = 0;
    bool has_ended_ = false;
};

}  // namespace twostroke
