// SPDX-License-Identifier: MIT
/// \file
/// Ranges: named parts of a program's run, each of one pass, reported to a listener such as a profiler.
///
///     const ht::range r(listener, "attention", ht::pass::forward);       // until the end of the scope
///
/// Without a listener a range costs one comparison with a null pointer.
#pragma once

#include <cstdint>

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The pass of a training step that a range belongs to.
enum class pass { forward, backward, update };

/// The number of passes.
inline constexpr int passes = 3;

/// "forward", "backward" or "update".
constexpr const char* name(pass p) {
    constexpr const char* names[passes] = {"forward", "backward", "update"};
    return names[static_cast<int>(p)];
}

/// Receives the beginning and the end of ranges. Ranges nest as scopes do; names are literals, or live as long as the
/// program.
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

    /// Whether the following is to be told, too: it costs a string for each operation, and evaluations take part.
    virtual bool wants_origins() const { return false; }
    /// The range that began last is of the layer with this path, "h.0.attn.qkv", or "h.0 after h.0.attn.proj" for an
    /// operation between layers. Watched tapes tell it (observe/watch/watched_tape.hpp).
    virtual void layer(const char* /*path*/) {}
    /// A training step begins; the first has number 1.
    virtual void begin_step(std::int64_t /*step*/) {}
    /// The step is complete. Not called for a step that ends with an exception.
    virtual void end_step() {}
};

/// Begins a range, and ends it at the end of the scope. Without a listener it does nothing.
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
