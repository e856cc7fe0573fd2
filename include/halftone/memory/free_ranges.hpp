// SPDX-License-Identifier: MIT
/// \file
/// The free ranges of an allocator, sorted by address; neighbours are joined.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

class free_ranges {
  public:
    struct range {
        std::byte* data;
        std::size_t bytes;
    };
    using iterator = std::vector<range>::iterator;

    bool empty() const { return all_.empty(); }
    void clear() { all_.clear(); }
    iterator begin() { return all_.begin(); }
    iterator end() { return all_.end(); }
    const range& back() const { return all_.back(); }

    /// The smallest range of at least `bytes` that begins before `limit`, if that is not null; end() if there is none.
    iterator best(std::size_t bytes, const std::byte* limit = nullptr) {
        auto best = all_.end();
        for (auto r = all_.begin(); r != all_.end() && (limit == nullptr || r->data < limit); ++r) {
            if (r->bytes >= bytes && (best == all_.end() || r->bytes < best->bytes)) best = r;
        }
        return best;
    }
    /// Whether all of these bytes are free.
    bool contain(const std::byte* data, std::size_t bytes) {
        const auto r = at_or_before(data);
        return r != all_.end() && r->data <= data && data + bytes <= r->data + r->bytes;
    }
    /// The free range that there would be if these bytes, which are not free, were.
    std::size_t bytes_around(const std::byte* data, std::size_t bytes) {
        const auto next = after(data);
        std::size_t all = bytes;
        if (next != all_.begin() && (next - 1)->data + (next - 1)->bytes == data) all += (next - 1)->bytes;
        if (next != all_.end() && next->data == data + bytes) all += next->bytes;
        return all;
    }
    /// Takes the first bytes of a range.
    std::byte* take(iterator from, std::size_t bytes) {
        std::byte* const block = from->data;
        if (from->bytes == bytes) {
            all_.erase(from);
        } else {
            from->data += bytes;
            from->bytes -= bytes;
        }
        return block;
    }
    /// Takes `bytes` at this address, which are free.
    void take_at(std::byte* block, std::size_t bytes) {
        auto r = at_or_before(block);
        const range behind{block + bytes, static_cast<std::size_t>(r->data + r->bytes - (block + bytes))};
        r->bytes = static_cast<std::size_t>(block - r->data);
        r = r->bytes == 0 ? all_.erase(r) : r + 1;
        if (behind.bytes != 0) all_.insert(r, behind);
    }
    /// Adds a range. It is joined with its neighbours, except where `is_border(address)`.
    template <class IsBorder>
    void give(std::byte* data, std::size_t bytes, const IsBorder& is_border) {
        const auto next = after(data);
        const bool joins_next = next != all_.end() && next->data == data + bytes && !is_border(next->data);
        const bool joins_previous =
            next != all_.begin() && (next - 1)->data + (next - 1)->bytes == data && !is_border(data);
        if (joins_next && joins_previous) {
            (next - 1)->bytes += bytes + next->bytes;
            all_.erase(next);
        } else if (joins_next) {
            next->data = data;
            next->bytes += bytes;
        } else if (joins_previous) {
            (next - 1)->bytes += bytes;
        } else {
            all_.insert(next, {data, bytes});
        }
    }
    void give(std::byte* data, std::size_t bytes) {
        give(data, bytes, [](const std::byte*) { return false; });
    }

  private:
    /// The range that begins there, else the one before; end() if there is none.
    iterator at_or_before(const std::byte* at) {
        const auto next = after(at);
        if (next != all_.end() && next->data == at) return next;
        return next == all_.begin() ? all_.end() : next - 1;
    }
    /// The first range at or behind the address.
    iterator after(const std::byte* at) {
        return std::lower_bound(all_.begin(), all_.end(), at,
                                [](const range& r, const std::byte* place) { return r.data < place; });
    }

    std::vector<range> all_;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
