// SPDX-License-Identifier: MIT
/// \file
/// The part of a pass in which a list calls a layer that is a unit of a sharded model (ranks/shard.hpp): the unit's
/// parameters are gathered when it begins, and given up when it ends.
///
///     detail::unit_scope unit(ctx.root(), store, first_entry);    // the layer's first parameter
///     auto y = layer(ctx, x);
///     unit.finish();                                              // not called after an exception
///
/// On a tape, a record at each end does the same in the backward pass, which meets the last one first; when it comes to the
/// first one, the unit's gradients are complete. A checkpoint that computes the layer again opens it again.
#pragma once

#include <halftone/autodiff/engine/operation.hpp>
#include <halftone/memory/sharding.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The record at a unit's begin or end.
template <class Tape>
struct unit_record {
    struct operation {
        static constexpr const char* name = "unit";
    };
    store_sharding* sharding;
    std::size_t unit;
    bool begins;

    void backward(Tape&) {
        if (begins) {
            sharding->close(unit, unit_pass::backward);
            sharding->complete(unit);
        } else {
            sharding->open(unit, unit_pass::backward);
        }
    }
};

template <class Root>
class unit_scope {
  public:
    unit_scope(Root& root, const store& owner, std::size_t entry) : root_(&root) {
        if (entry == store::nowhere || owner.unit_of(entry) == 0) return;
        sharding_ = owner.sharding();
        unit_ = owner.unit_of(entry);
        if (sharding_->current() == unit_) {
            sharding_ = nullptr;
            return;
        }
        if constexpr (records_double_backward<Root>)
            fail<argument_error>("shard: a tape for second derivatives reads parameters after their unit has ended; use zero2");
        if constexpr (requires { root.graph().runs_backward(); }) {
            if (root.graph().runs_backward()) pass_ = unit_pass::backward;
        }
        sharding_->open(unit_, pass_);
        record(true);
    }
    unit_scope(const unit_scope&) = delete;
    unit_scope& operator=(const unit_scope&) = delete;
    ~unit_scope() {
        if (sharding_ != nullptr) sharding_->close(unit_, pass_);
    }

    /// The layer has returned.
    void finish() {
        if (sharding_ != nullptr) record(false);
    }

  private:
    void record(bool begins) {
        if constexpr (requires { requires Root::records; } && hook_of<Root>::keeps_records && !records_double_backward<Root>) {
            using plain = tape<typename Root::device_type>;
            if (root_->graph().is_recording())
                root_->graph().template push<plain>(unit_record<plain>{sharding_, unit_, begins});
        }
    }

    Root* root_;
    store_sharding* sharding_ = nullptr;
    std::size_t unit_ = 0;
    unit_pass pass_ = unit_pass::forward;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
