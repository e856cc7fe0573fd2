// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in gradient_slabs.hpp that are no templates.
#pragma once

#include <halftone/memory/gradient_slabs.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

HALFTONE_OUT_OF_LINE gradient_slabs::gradient_slabs(store& owner)
    : store_(&owner),
      layout_(owner.layout()),
      squares_(owner.entries().size()),
      claimed_(owner.entries().size(), false),
      reached_(owner.entries().size(), false) {
    owner.check_committed();
    whole_.resize(owner.runs().size()), sent_.resize(owner.runs().size());
    for (const store::group& g : owner.groups()) {
        slabs_.emplace_back(owner.memory(), g.has_sparse_gradients ? 0 : g.gradients * g.accumulate_bytes,
                            memory_kind::gradient);
        owner.memory().clear(slabs_.back().data(), slabs_.back().bytes());
    }
    for (const store::entry& e : owner.entries()) {
        const store::group& g = owner.groups()[e.group];
        if (!g.has_sparse_gradients)
            owner.tell_slab(memory_kind::gradient, e, g.accumulate_bytes, slabs_[e.group].data());
        rows_.emplace_back(g.has_sparse_gradients && !e.frozen
                               ? std::make_unique<detail::row_memory>(owner.memory(), e.path, e.rows, e.width,
                                                                      g.accumulate_bytes, e.most_rows)
                               : nullptr);
    }
}

HALFTONE_OUT_OF_LINE gradient_slabs::place gradient_slabs::claim(std::size_t entry) {
    check_layout();
    const store::entry& e = store_->entries()[entry];
    if (e.frozen) return {};
    if (rows_[entry])
        fail<argument_error>("gradients: that of ", e.path,
                             " is sparse and has no place in a slab; claim_rows makes room for it");
    if (listener_ != nullptr) listener_->claim(part_, entry);
    const bool first = !claimed_[entry];
    claimed_[entry] = true;
    if (store_->is_divided()) {
        if (sent_[e.run]) {
            fail<state_error>("gradients: that of ", e.path,
                              " has been sent to the other ranks, and its unit is called again; "
                              "let micro_batches of ht::shard be 0, so that all are sent in take()");
        }
        if (is_divided(e)) whole(e.run);
    }
    return {at(e), first, &squares_[entry], std::exchange(squares_[entry], {})};
}

HALFTONE_OUT_OF_LINE void gradient_slabs::close() {
    check_layout();
    for (std::size_t i = 0; i < claimed_.size(); ++i) {
        const store::entry& e = store_->entries()[i];
        if (!claimed_[i]) clear_unclaimed(e, i);
        if (!claimed_[i] && rows_[i]) rows_[i]->set_empty();
        if (!claimed_[i]) squares_[i] = {};
        reached_[i] = claimed_[i];
        claimed_[i] = false;
    }
}

HALFTONE_OUT_OF_LINE std::byte* gradient_slabs::whole(std::size_t run) {
    const store_run& r = store_->runs()[run];
    const std::size_t each = store_->groups()[r.group].accumulate_bytes;
    if (r.gradient.is_whole) return slabs_[r.group].data() + r.gradient.first * each;
    if (whole_[run].data() == nullptr) {
        whole_[run] = buffer(store_->memory(), r.count * each, memory_kind::gradient);
        store_->memory().clear(whole_[run].data(), whole_[run].bytes());
    }
    return whole_[run].data();
}

HALFTONE_OUT_OF_LINE void gradient_slabs::send(std::size_t run) {
    for (std::size_t i = 0; i < claimed_.size(); ++i) {
        const store::entry& e = store_->entries()[i];
        if (e.run == run && !claimed_[i]) clear_unclaimed(e, i);
    }
    sent_[run] = true;
}

HALFTONE_OUT_OF_LINE std::size_t gradient_slabs::bytes() const {
    std::size_t n = 0;
    for (const buffer& b : slabs_) n += round_up(b.bytes(), block_alignment);
    for (const auto& r : rows_) n += r ? r->bytes() : 0;
    return n;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
