// SPDX-License-Identifier: MIT
/// \file
/// The median of the latest numbers of a series, such as step times: single outliers do not affect it.
///
///     ht::detail::recent seconds{1024};
///     seconds.add(0.25);
///     seconds.median();
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The latest numbers of a series, up to its capacity.
class recent {
  public:
    explicit recent(std::size_t capacity) : values_(capacity), sorted_(capacity) {}

    void add(double value) { values_[count_++ % values_.size()] = value; }
    std::size_t size() const { return std::min(count_, values_.size()); }
    double median() {
        if (size() == 0) return 0;
        const auto end = std::copy_n(values_.begin(), size(), sorted_.begin());
        const auto middle = sorted_.begin() + static_cast<std::ptrdiff_t>(size() / 2);
        std::nth_element(sorted_.begin(), middle, end);
        return *middle;
    }

  private:
    std::vector<double> values_, sorted_;
    std::size_t count_ = 0;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
