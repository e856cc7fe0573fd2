// SPDX-License-Identifier: MIT
/// \file
/// Gradient buffers of all parameters of a store, in slabs with the same layout as the optimizer's moments.
///
/// A backward pass claims the buffer of a parameter's gradient. The first claim in a window tells it to overwrite the
/// buffer, every later one to add. So no slab is ever set to zero first, and none is read before it has been written.
///
/// A table with a sparse gradient is not stored in a slab; it has separate rows (memory/gradient_rows.hpp).
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <halftone/memory/gradient_listener.hpp>
#include <halftone/memory/gradient_rows.hpp>
#include <halftone/memory/square_sum.hpp>
#include <halftone/memory/store.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The gradients of one store's parameters, in its `accumulate` types. The store must live longer than this object.
/// Throws state_error if the store has not been committed.
class gradient_slabs {
  public:
    explicit gradient_slabs(store& owner);

    halftone::store& owner() const { return *store_; }
    /// From now on `listener` is told of every claim, with this number; nullptr: no listener.
    void listen(detail::gradient_listener* listener, std::size_t part) {
        listener_ = listener;
        part_ = part;
    }

    /// The result of claim().
    struct place {
        std::byte* data = nullptr;      ///< the gradient's buffer; nullptr for a frozen parameter, which has none
        bool is_first = true;           ///< nothing has been written to the buffer in this window
        square_sum* squares = nullptr;  ///< a kernel that sums the gradient's squares writes them here
        square_sum squares_before{};    ///< the sum before this claim, valid if nothing was written since
    };
    /// The buffer of an entry's gradient; its sum of squares is unknown after this call. Throws state_error if
    /// parameters were frozen after these slabs were constructed.
    place claim(std::size_t entry);

    /// The result of claim_rows().
    template <class T>
    struct row_place {
        gradient_rows<T> rows{};
        extent before = 0;       ///< upper bound of the number of rows that this window already has
        bool is_wanted = false;  ///< false for a frozen parameter
    };
    /// The buffer of a sparse gradient, with room for the rows of `tokens` more lookups. If it has to grow, captured
    /// work must be captured again. Throws argument_error, and changes nothing, if that exceeds the table's limit of
    /// rows.
    template <class Device, class Storage, int Rank>
    row_place<typename Storage::accumulate> claim_rows(Device& device, const parameter<Storage, Rank>& p,
                                                       extent tokens) {
        check_layout();
        if (store_->entries()[p.entry()].frozen) return {};
        if (listener_ != nullptr) listener_->claim(part_, p.entry());
        detail::row_memory& memory = *rows_[p.entry()];
        const extent before = memory.make_room(device, tokens, !claimed_[p.entry()]);
        claimed_[p.entry()] = true;
        return {memory.rows<typename Storage::accumulate>(), before, true};
    }

    /// Ends a window: gradients that no backward pass has claimed become zero, and the next claims are first claims
    /// again.
    void close();
    /// The sum of squares of an entry's gradient; nullptr if the kernel that wrote it last did not compute an exact
    /// one.
    const square_sum* squares(std::size_t entry) const {
        const square_sum& s = squares_[entry];
        return s.is_known(static_cast<extent>(store_->entries()[entry].count)) ? &s : nullptr;
    }
    /// Forgets the sums of squares, none of which is valid any more; to be called after gradients were changed other
    /// than through claim().
    void forget_squares() { std::fill(squares_.begin(), squares_.end(), square_sum{}); }
    /// Whether a backward pass of the last window that has ended computed a gradient for this entry.
    bool is_reached(std::size_t entry) const { return reached_[entry]; }
    /// After close(): another rank's backward pass has computed one, which was added to this one.
    void set_reached(std::size_t entry) { reached_[entry] = true; }

    /// The gradients of one group, with the layout of the parameters; gaps between parameters are zero.
    template <class Storage>
    view<typename Storage::accumulate, 1> group(std::size_t index) const {
        using type = typename Storage::accumulate;
        return {reinterpret_cast<type*>(slabs_[index].data()),
                {static_cast<extent>(slabs_[index].bytes() / sizeof(type))}};
    }

    /// The gradient of one parameter, in its shape. Throws argument_error for a parameter of another store, state_error
    /// for a frozen one, which has none.
    template <class Storage, int Rank>
    const_view<typename Storage::accumulate, Rank> of(const parameter<Storage, Rank>& p) const {
        static_assert(!has_sparse_gradient<Storage>,
                      "halftone: gradients: that of this table is sparse, and nothing has the table's shape: "
                      "rows(table) gives the rows that were looked up, read_rows(table) copies them into host memory");
        if (&p.owner() != store_) fail<argument_error>("gradients: a parameter of another store");
        check_layout();
        const store::entry& e = store_->entries()[p.entry()];
        if (e.frozen) fail<state_error>("gradients: ", e.path, " is frozen and has no gradient");
        if (is_divided(e))
            fail<state_error>("gradients: that of ", e.path, " is sharded, and after a window this rank has a part of it only");
        return {reinterpret_cast<const typename Storage::accumulate*>(at(e)), p.shape()};
    }

    /// After a window: whether they are sums of several ranks' gradients, of which all ranks must find the same norm.
    bool are_of_ranks() const { return are_of_ranks_; }
    /// Called when they have become such sums; they are so in all later windows, too.
    void set_of_ranks() { are_of_ranks_ = true; }

    // ---- of a store that is divided among ranks: its runs of parameters (memory/store_run.hpp)

    /// The gradients of a run as this rank's backward passes left them. Where this rank keeps a piece only, the others have
    /// memory from the first claim until drop_whole(); it begins with zeros.
    std::byte* whole(std::size_t run);
    /// Within a window's last pass: no gradient of the run may be claimed any more; those that were not are zero.
    void send(std::size_t run);
    /// Whether send() was called for it in this window.
    bool is_sent(std::size_t run) const { return sent_[run]; }
    /// Frees the memory of one run, or of all, whose window then has ended.
    void drop_whole(std::size_t run) { whole_[run] = buffer(); }
    void drop_whole() {
        for (buffer& b : whole_) b = buffer();
        sent_.assign(sent_.size(), false);
    }
    /// The first element of a group's slab.
    std::byte* slab(std::size_t group) const { return slabs_[group].data(); }

    /// The rows of a sparse gradient, in the device's memory. Throws as of() does.
    template <class Storage, int Rank>
    gradient_rows<typename Storage::accumulate> rows(const parameter<Storage, Rank>& p) const {
        return memory_of(p).template rows<typename Storage::accumulate>();
    }
    /// The rows of a sparse gradient, in host memory. On a GPU it waits for the device.
    template <class Storage, int Rank>
    host_rows<typename Storage::accumulate> read_rows(const parameter<Storage, Rank>& p) const {
        return memory_of(p).template read<typename Storage::accumulate>();
    }
    /// The gradient of a parameter that is not frozen, by the parameter's index in the store.
    template <class T>
    gradient_rows<T> rows(std::size_t entry) const {
        return rows_[entry]->template rows<T>();
    }
    /// Bytes of memory; sparse gradients count with their current size.
    std::size_t bytes() const;

  private:
    template <class Storage, int Rank>
    const detail::row_memory& memory_of(const parameter<Storage, Rank>& p) const {
        static_assert(has_sparse_gradient<Storage>,
                      "halftone: gradients: that of this parameter is dense: of(parameter) views it");
        if (&p.owner() != store_) fail<argument_error>("gradients: a parameter of another store");
        check_layout();
        const store::entry& e = store_->entries()[p.entry()];
        if (e.frozen) fail<state_error>("gradients: ", e.path, " is frozen and has no gradient");
        return *rows_[p.entry()];
    }
    void clear_unclaimed(const store::entry& e, std::size_t entry) {
        if (e.frozen || rows_[entry] || is_divided(e) || (store_->is_divided() && sent_[e.run])) return;
        store_->memory().clear(at(e), e.count * store_->groups()[e.group].accumulate_bytes);
    }
    /// Whether this rank keeps a piece of the gradient only.
    bool is_divided(const store::entry& e) const {
        return store_->is_divided() && !store_->runs()[e.run].gradient.is_whole;
    }
    std::byte* at(const store::entry& e) const {
        if (is_divided(e)) return whole_[e.run].data() + e.in_run * store_->groups()[e.group].accumulate_bytes;
        return slabs_[e.group].data() + e.gradient * store_->groups()[e.group].accumulate_bytes;
    }
    void check_layout() const {
        if (layout_ != store_->layout())
            fail<state_error>("gradients: parameters were frozen after these buffers were made; freeze first");
    }

    halftone::store* store_;
    unsigned layout_;
    std::vector<buffer> slabs_;
    bool are_of_ranks_ = false;
    std::vector<buffer> whole_;  // by run, of those of which this rank keeps a piece, within a window
    std::vector<bool> sent_;     // by run, within a window
    std::vector<std::unique_ptr<detail::row_memory>> rows_;  // by entry; null for dense gradients
    std::vector<square_sum> squares_;                        // by entry
    std::vector<bool> claimed_, reached_;                    // by entry: in the current window; in the last one that ended
    detail::gradient_listener* listener_ = nullptr;
    std::size_t part_ = 0;  // its number for the listener
};

}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/memory/gradient_slabs.body.hpp>
#endif
