// SPDX-License-Identifier: MIT
/// \file
/// Who is told when an operation begins and ends: profilers and traces. A context without a listener pays one comparison
/// for each operation.
///
///     struct mine : ht::range_listener { ... };
///     tape.listen(&mine);
#pragma once

#include <halftone/config.hpp>

namespace halftone::inline HALFTONE_ABI {

enum class pass { forward, backward };

constexpr const char* name(pass p) { return p == pass::forward ? "forward" : "backward"; }

/// Ranges nest: `end` closes the one that began last. `operation` is a literal, "linear" or "attention".
class range_listener {
  public:
    virtual void begin(const char* operation, pass p) = 0;
    virtual void end() noexcept = 0;

  protected:
    ~range_listener() = default;
};

/// A range for the lifetime of this object.
class named_range {
  public:
    named_range(range_listener* listener, const char* operation, pass p) : listener_(listener) {
        if (listener_ != nullptr) listener_->begin(operation, p);
    }
    named_range(const named_range&) = delete;
    named_range& operator=(const named_range&) = delete;
    ~named_range() {
        if (listener_ != nullptr) listener_->end();
    }

  private:
    range_listener* listener_;
};

}  // namespace halftone::inline HALFTONE_ABI
