// SPDX-License-Identifier: MIT
/// \file
/// Weights in blocks of a format, from values that come in pieces: scales of scales follow from a whole weight.
///
///     detail::code_gatherer codes{parameters, expected};
///     codes.take(index, {first, count}, values);               // by any thread; the last piece makes the codes
#pragma once

#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include <halftone/memory/store.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Holds each weight from its first piece to its last, as floats.
class code_gatherer {
  public:
    /// `expected`: how many elements of each entry come.
    code_gatherer(store& parameters, std::vector<std::size_t> expected)
        : parameters_(parameters), expected_(std::move(expected)) {}

    /// Takes values of a part of an entry, each of which comes once.
    void take(std::size_t index, const element_range& part, const float* values) {
        weight& w = of(index);
        std::memcpy(w.values.data() + part.first, values, part.count * sizeof(float));
        {
            const std::lock_guard lock(mutex_);
            w.missing -= part.count;
            if (w.missing != 0) return;
        }
        parameters_.write_coded(index, w.values.data());
        const std::lock_guard lock(mutex_);
        weights_.erase(index);
    }

  private:
    struct weight {
        std::vector<float> values;
        std::size_t missing;
    };

    weight& of(std::size_t index) {
        const std::lock_guard lock(mutex_);
        const auto found = weights_.find(index);
        if (found != weights_.end()) return found->second;
        const store_entry& e = parameters_.entries()[index];
        weight& made = weights_.emplace(index, weight{std::vector<float>(e.count), expected_[index]}).first->second;
        if (made.missing < e.count) parameters_.read_coded(e, 0, e.count, made.values.data());
        return made;
    }

    store& parameters_;
    std::vector<std::size_t> expected_;
    std::mutex mutex_;
    std::map<std::size_t, weight> weights_;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
