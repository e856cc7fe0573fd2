// SPDX-License-Identifier: MIT
/// \file
/// Whether the calls of this thread are measured (exec/measure.hpp). The views that operations get then need not have memory, so
/// that their addresses say nothing.
#pragma once

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// While an object of this class lives, calls of this thread are measured.
class measurement {
  public:
    measurement() { ++depth(); }
    measurement(const measurement&) = delete;
    measurement& operator=(const measurement&) = delete;
    ~measurement() { --depth(); }

    static bool is_under_way() { return depth() != 0; }

  private:
    static int& depth() {
        static thread_local int depth = 0;
        return depth;
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
