// SPDX-License-Identifier: MIT
/// \file
/// The gradient of a table as the rows that were looked up: each index once, in ascending order, and beside it the
/// row's values. How many there are only the device knows, so that the host never waits for it.
///
///     const ht::gradient_rows<float> rows = grads.rows(items.table);      // over the device's memory
///     const ht::host_rows<float> seen = grads.read_rows(items.table);     // copied out of it, which waits
///     seen.indices[0], seen.values[0 * width + j]
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <halftone/memory/capture_dependency.hpp>
#include <halftone/memory/resource.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The rows of a sparse gradient, in the device's memory.
template <class T>
struct gradient_rows {
    view<std::int32_t, 1> indices{};  ///< (capacity): ascending, each once; undefined from row *count on
    view<T, 2> values{};              ///< (capacity, width)
    std::int32_t* count = nullptr;    ///< in the device's memory
};

/// The same in host memory.
template <class T>
struct host_rows {
    std::vector<std::int32_t> indices;
    std::vector<T> values;  ///< (indices.size(), width)
};

namespace detail {

/// The memory of one table's rows. It grows, between one micro-batch and the next, to what the largest window so far
/// could have touched: a row for each token looked up, and never more than the table has.
class row_memory final : public detail::capture_dependency {
  public:
    /// `most`: as many rows are taken at once, and no more ever; 0: it grows.
    row_memory(memory_resource& memory, const std::string& path, extent table_rows, extent width,
               std::size_t value_bytes, extent most)
        : detail::capture_dependency(&memory.capture_dependencies(), "the rows of a sparse gradient have moved"),
          memory_(&memory),
          path_(path),
          table_rows_(table_rows),
          width_(width),
          row_bytes_(static_cast<std::size_t>(width) * value_bytes),
          is_fixed_(most > 0),
          count_(memory, sizeof(std::int32_t), memory_kind::gradient) {
        memory.clear(count_.data(), count_.bytes());
        if (is_fixed_) take(std::min(most, table_rows), [](std::byte*, std::byte*) {});
    }

    /// Room for the rows of `tokens` further lookups, the first of a window or not. Gives how many rows were there
    /// before at most. Throws argument_error where the window has more than there is room for; nothing changes then.
    template <class Device>
    extent make_room(Device& device, extent tokens, bool is_first) {
        const extent before = is_first ? 0 : used_;
        const extent wanted = tokens > table_rows_ - before ? table_rows_ : before + tokens;
        if (wanted > capacity_ && is_fixed_) {
            fail<argument_error>("gradient of ", path_, ": room for ", capacity_,
                                 " rows (its most_rows), and this window may have looked up ", before, "; no room for ",
                                 tokens, " tokens more");
        }
        if (wanted > capacity_) {
            take(wanted, [&](std::byte* indices, std::byte* values) {
                if (before == 0) return;
                device.copy(indices, indices_.data(), static_cast<std::size_t>(before) * sizeof(std::int32_t));
                device.copy(values, values_.data(), static_cast<std::size_t>(before) * row_bytes_);
            });
        }
        used_ = wanted;
        return before;
    }

    /// Nothing was looked up in this window.
    void set_empty() const { memory_->clear(count_.data(), sizeof(std::int32_t)); }

    template <class T>
    gradient_rows<T> rows() const {
        return {{reinterpret_cast<std::int32_t*>(indices_.data()), shape<1>{capacity_}},
                {reinterpret_cast<T*>(values_.data()), shape<2>{capacity_, width_}},
                reinterpret_cast<std::int32_t*>(count_.data())};
    }
    template <class T>
    host_rows<T> read() const {
        std::int32_t count = 0;
        memory_->read(&count, count_.data(), sizeof count);
        host_rows<T> host{std::vector<std::int32_t>(static_cast<std::size_t>(count)),
                          std::vector<T>(static_cast<std::size_t>(count * width_))};
        memory_->read(host.indices.data(), indices_.data(), host.indices.size() * sizeof(std::int32_t));
        memory_->read(host.values.data(), values_.data(), host.values.size() * sizeof(T));
        return host;
    }
    extent capacity() const { return capacity_; }
    /// Of device memory.
    std::size_t bytes() const {
        return round_up(indices_.bytes(), block_alignment) + round_up(values_.bytes(), block_alignment) +
               round_up(count_.bytes(), block_alignment);
    }

  private:
    /// Calls move(new indices, new values) before the old ones go.
    template <class Move>
    void take(extent rows, const Move& move) {
        buffer indices(*memory_, static_cast<std::size_t>(rows) * sizeof(std::int32_t), memory_kind::gradient);
        buffer values(*memory_, static_cast<std::size_t>(rows) * row_bytes_, memory_kind::gradient);
        move(indices.data(), values.data());
        indices_.swap(indices), values_.swap(values);
        capacity_ = rows;
        change();
    }

    memory_resource* memory_;
    std::string path_;
    extent table_rows_, width_;
    std::size_t row_bytes_;
    bool is_fixed_;
    extent capacity_ = 0, used_ = 0;
    buffer indices_{}, values_{}, count_;
};

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone
