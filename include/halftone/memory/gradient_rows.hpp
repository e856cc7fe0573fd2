// SPDX-License-Identifier: MIT
/// \file
/// The sparse gradient of an embedding table: the rows that were looked up, each index once in ascending order, with
/// their values. The number of rows is only in device memory, so that the host never waits for it.
///
///     const ht::gradient_rows<float> rows = grads.rows(items.table);      // views of the device's memory
///     const ht::host_rows<float> seen = grads.read_rows(items.table);     // a copy in host memory: waits for the device
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

/// A sparse gradient's rows, in the device's memory.
template <class T>
struct gradient_rows {
    view<std::int32_t, 1> indices{};  ///< (capacity): ascending, each once; undefined from row *count on
    view<T, 2> values{};              ///< (capacity, width)
    std::int32_t* count = nullptr;    ///< the number of rows, in the device's memory
};

/// A sparse gradient's rows, in host memory.
template <class T>
struct host_rows {
    std::vector<std::int32_t> indices;
    std::vector<T> values;  ///< (indices.size(), width)
};

namespace detail {

/// The memory of one table's gradient rows. Between micro-batches it grows to the number of rows that the largest
/// window so far could have used: one for each token looked up, but no more than the table has.
class row_memory final : public detail::capture_dependency {
  public:
    /// `most`: the number of rows allocated at once, and the limit; 0: the memory grows.
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

    /// Makes room for the rows of `tokens` more lookups, the first of a window or later ones. Returns an upper bound on
    /// the number of rows before. Throws argument_error, and changes nothing, if the window's lookups exceed the limit.
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

    /// Records that this window had no lookups.
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
    /// Bytes of device memory.
    std::size_t bytes() const {
        return round_up(indices_.bytes(), block_alignment) + round_up(values_.bytes(), block_alignment) +
               round_up(count_.bytes(), block_alignment);
    }

  private:
    /// Grows the memory. Calls move(new indices, new values) before the old ones are freed.
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
