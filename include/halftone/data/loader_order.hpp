// SPDX-License-Identifier: MIT
/// \file
/// The order in which a data loader takes the samples of an epoch: shuffled or not, sorted by length within windows or
/// not. It is a function of the number of samples, the options and the epoch alone.
///
///     detail::loader_order order(options, size, length);
///     order.begin(seed, epoch);
///     order.copy(first, count, indices);                                  // of positions [first, first + count)
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include <halftone/data/loader_options.hpp>
#include <halftone/data/shuffle.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

class loader_order {
  public:
    /// length(index) is asked only with options.bucket_batches.
    loader_order(const loader_options& options, extent size, std::function<extent(extent)> length)
        : options_(options), size_(size), length_(std::move(length)), plain_(size, 0, 0) {}

    void begin(std::uint64_t seed, std::uint32_t epoch) {
        plain_ = shuffled_order(size_, seed, epoch);
        seed_ = seed, epoch_ = epoch;
        window_ = -1;
    }

    void copy(extent first, extent count, std::vector<extent>& to) {
        to.clear();
        for (extent i = first; i < first + count; ++i) to.push_back(at(i));
    }

  private:
    extent plain(extent position) const {
        return options_.order == row_order::shuffled ? plain_[position] : position;
    }
    extent at(extent position) {
        const extent batch = options_.batch_size, full = size_ / batch * batch;
        // The samples that do not fill a batch are the last of the plain order, not the longest.
        if (options_.bucket_batches == 0 || position >= full) return plain(position);
        const extent rows = batch * std::min(options_.bucket_batches, full / batch);
        if (position / rows != window_) sort(position / rows, rows, full);
        const extent within = position % rows;
        return sorted_[static_cast<std::size_t>(starts_[static_cast<std::size_t>(within / batch)] + within % batch)];
    }
    /// Sorts the samples of a window, and shuffles the batches that they make.
    void sort(extent window, extent rows, extent full) {
        const extent first = window * rows, count = std::min(rows, full - first), batches = count / options_.batch_size;
        std::vector<std::pair<extent, extent>> by_length;  // and by the plain order
        for (extent i = 0; i < count; ++i) by_length.push_back({length_(plain(first + i)), i});
        std::sort(by_length.begin(), by_length.end());
        sorted_.clear(), starts_.clear();
        for (const auto& [length, i] : by_length) sorted_.push_back(plain(first + i));
        // Each window has an order of its own: the golden ratio times its number distinguishes their seeds.
        const shuffled_order order(batches, seed_ + 0x9e3779b97f4a7c15 * static_cast<std::uint64_t>(window + 1), epoch_);
        for (extent b = 0; b < batches; ++b)
            starts_.push_back((options_.order == row_order::shuffled ? order[b] : b) * options_.batch_size);
        window_ = window;
    }

    loader_options options_;
    extent size_;
    std::function<extent(extent)> length_;
    shuffled_order plain_;
    std::uint64_t seed_ = 0;
    std::uint32_t epoch_ = 0;
    extent window_ = -1;           ///< the one that is sorted
    std::vector<extent> sorted_;   ///< its samples, by length
    std::vector<extent> starts_;   ///< where its batches begin in sorted_
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
