// SPDX-License-Identifier: MIT
/// \file
/// Arrays with guard bytes before and after, at any alignment: detects writes outside of the array.
///
///     support::guarded<ht::bfloat16> y{rows * width, 1};         // one element off a vector's alignment
///     run(y.data());
///     CHECK(y.intact());
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include <halftone/tensor/view.hpp>

namespace support {

template <class T>
class guarded {
  public:
    /// Contents are NaN, so that elements that a kernel does not write are detected.
    explicit guarded(std::int64_t count, std::int64_t offset = 1)
        : bytes_(static_cast<std::size_t>(count + 2 * margin) * sizeof(T) + 64, 0xff), count_(count) {
        const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
        const std::uintptr_t aligned = (address + 63) & ~std::uintptr_t{63};
        first_ = reinterpret_cast<T*>(aligned) + margin - 16 + offset % 16;
    }
    guarded(const std::vector<T>& values, std::int64_t offset = 1)
        : guarded(static_cast<std::int64_t>(values.size()), offset) {
        std::copy(values.begin(), values.end(), first_);
    }
    guarded(const guarded&) = delete;
    guarded& operator=(const guarded&) = delete;

    T* data() const { return first_; }
    std::int64_t size() const { return count_; }
    T& operator[](std::int64_t i) const { return first_[i]; }

    template <int Rank>
    halftone::view<T, Rank> view(const halftone::shape<Rank>& shape) const {
        return {first_, shape};
    }
    template <int Rank>
    halftone::const_view<T, Rank> const_view(const halftone::shape<Rank>& shape) const {
        return {first_, shape};
    }
    halftone::view<T, 1> view() const { return {first_, {count_}}; }
    halftone::const_view<T, 1> const_view() const { return {first_, {count_}}; }

    /// Whether every guard byte is unchanged.
    bool intact() const {
        const auto* begin = reinterpret_cast<const unsigned char*>(first_);
        const auto* end = reinterpret_cast<const unsigned char*>(first_ + count_);
        const auto untouched = [](unsigned char byte) { return byte == 0xff; };
        return std::all_of(bytes_.data(), begin, untouched) &&
               std::all_of(end, bytes_.data() + bytes_.size(), untouched);
    }

    bool same_bits(const guarded& other) const {
        return count_ == other.count_ &&
               std::memcmp(first_, other.first_, static_cast<std::size_t>(count_) * sizeof(T)) == 0;
    }

  private:
    static constexpr std::int64_t margin = 32;
    std::vector<unsigned char> bytes_;
    std::int64_t count_;
    T* first_;
};

}  // namespace support
