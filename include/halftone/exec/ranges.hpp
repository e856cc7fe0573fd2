// SPDX-License-Identifier: MIT
/// \file
/// Ranges: a stretch of a program that has a name and belongs to a pass. Who wants to know of them listens.
///
///     const ht::range r(listener, "attention", ht::pass::forward);       // until the end of the scope
///
/// Without a listener a range costs one comparison with a null pointer.
#pragma once

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The part of a training step that a range belongs to.
enum class pass { forward, backward, update };

/// How many passes there are.
inline constexpr int passes = 3;

/// "forward", "backward" or "update".
constexpr const char* name(pass p) {
    constexpr const char* names[passes] = {"forward", "backward", "update"};
    return names[static_cast<int>(p)];
}

/// Told where ranges begin and end. They nest as scopes do; names live as long as the program, literals say.
class range_listener {
  public:
    range_listener() = default;
    range_listener(const range_listener&) = delete;
    range_listener& operator=(const range_listener&) = delete;
    virtual ~range_listener() = default;

    /// A range of this name begins.
    virtual void begin(const char* operation, pass p) = 0;
    /// The range that began last ends.
    virtual void end() = 0;
};

/// Begins a range and ends it with its scope; does nothing where nobody listens.
class range {
  public:
    range(range_listener* listener, const char* operation, pass p) : listener_(listener) {
        if (listener_ != nullptr) listener_->begin(operation, p);
    }
    range(const range&) = delete;
    range& operator=(const range&) = delete;
    ~range() {
        if (listener_ != nullptr) listener_->end();
    }

  private:
    range_listener* listener_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
