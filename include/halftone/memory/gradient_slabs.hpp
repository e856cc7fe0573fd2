// SPDX-License-Identifier: MIT
/// \file
/// Gradients of all parameters of a store, in slabs that lie parallel to the optimizer's.
///
/// A backward pass claims the place of a parameter's gradient; the first claim in a window tells it to overwrite what is
/// there, every later one to add. So no slab is ever cleared, and none is read before it has been written.
#pragma once

#include <vector>

#include <halftone/memory/store.hpp>

namespace halftone::inline HALFTONE_ABI {

class gradient_slabs {
  public:
    explicit gradient_slabs(store& owner) : store_(&owner), layout_(owner.layout()), claimed_(owner.entries().size(), false) {
        owner.check_committed();
        for (const store::group& g : owner.groups()) {
            slabs_.emplace_back(owner.memory(), g.gradients * g.accumulate_bytes, memory_kind::gradient);
            owner.memory().clear(slabs_.back().data(), slabs_.back().bytes());
        }
    }

    halftone::store& owner() const { return *store_; }

    struct place {
        std::byte* data = nullptr;   ///< where the gradient lies; nullptr for a frozen parameter, which wants none
        bool is_first = true;        ///< nothing has been written there in this window
    };
    /// The place of an entry's gradient. Throws state_error where parameters were frozen since these slabs were made.
    place claim(std::size_t entry) {
        check_layout();
        const store::entry& e = store_->entries()[entry];
        if (e.frozen) return {};
        const bool first = !claimed_[entry];
        claimed_[entry] = true;
        return {at(e), first};
    }

    /// Ends a window: what no backward pass reached is zero, and the next claims are first ones again. False where none
    /// reached anything.
    bool close() {
        check_layout();
        bool reached = false;
        for (std::size_t i = 0; i < claimed_.size(); ++i) {
            const store::entry& e = store_->entries()[i];
            if (!claimed_[i] && !e.frozen) store_->memory().clear(at(e), e.count * store_->groups()[e.group].accumulate_bytes);
            reached = reached || claimed_[i];
            claimed_[i] = false;
        }
        return reached;
    }

    /// The gradients of one group, as the parameters lie in it; gaps between parameters are zero.
    template <class Storage>
    view<typename Storage::accumulate, 1> group(std::size_t index) const {
        using type = typename Storage::accumulate;
        return {reinterpret_cast<type*>(slabs_[index].data()), {static_cast<extent>(slabs_[index].bytes() / sizeof(type))}};
    }

    /// The gradient of one parameter, in its shape. Throws argument_error for a parameter of another store, state_error for
    /// a frozen one, which has none.
    template <class Storage, int Rank>
    const_view<typename Storage::accumulate, Rank> of(const parameter<Storage, Rank>& p) const {
        if (&p.owner() != store_) fail<argument_error>("gradients: a parameter of another store");
        check_layout();
        const store::entry& e = store_->entries()[p.entry()];
        if (e.frozen) fail<state_error>("gradients: ", e.path, " is frozen and has no gradient");
        return {reinterpret_cast<const typename Storage::accumulate*>(at(e)), p.shape()};
    }

  private:
    std::byte* at(const store::entry& e) const { return slabs_[e.group].data() + e.gradient * store_->groups()[e.group].accumulate_bytes; }
    void check_layout() const {
        if (layout_ != store_->layout()) fail<state_error>("gradients: parameters were frozen after these buffers were made; freeze first");
    }

    halftone::store* store_;
    unsigned layout_;
    std::vector<buffer> slabs_;
    std::vector<bool> claimed_;
};

}  // namespace halftone::inline HALFTONE_ABI
