// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in graph.hpp that are no templates.
#pragma once

#include <halftone/autodiff/engine/graph.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

HALFTONE_OUT_OF_LINE void* record_memory::take(std::size_t bytes) {
    bytes = round_up(bytes, alignof(std::max_align_t));
    while (current_ < chunks_.size() && used_ + bytes > chunk_bytes) ++current_, used_ = 0;
    if (current_ == chunks_.size()) chunks_.push_back(std::make_unique<chunk>()), used_ = 0;
    return chunks_[current_]->data + std::exchange(used_, used_ + bytes);
}

HALFTONE_OUT_OF_LINE graph::index graph::make_block(std::size_t bytes) {
    const index id = take(blocks_, free_blocks_);
    try {
        blocks_[at(id)] = {arena_.allocate(bytes), bytes, 1, true};
    } catch (...) {
        free_blocks_.push_back(id);
        throw;
    }
    return id;
}

HALFTONE_OUT_OF_LINE graph::index graph::make_block_over(const void* data, std::size_t bytes) {
    const index id = take(blocks_, free_blocks_);
    blocks_[at(id)] = {static_cast<std::byte*>(const_cast<void*>(data)), bytes, 1, false};
    return id;
}

HALFTONE_OUT_OF_LINE void graph::release_block(index id) noexcept {
    block& b = blocks_[at(id)];
    if (--b.references != 0) return;
    if (b.is_owned) arena_.deallocate(b.data, b.bytes);
    free_blocks_.push_back(id);
}

HALFTONE_OUT_OF_LINE graph::index graph::make_leaf(index value, bool wants_gradient) {
    const index id = take(slots_, free_slots_);
    slots_[at(id)] = {value, none, 1, 1, any_pass, wants_gradient};
    return id;
}

HALFTONE_OUT_OF_LINE graph::index graph::make_result(index value, bool wants_gradient) {
    const index id = make_leaf(value, wants_gradient);
    slots_[at(id)].pass = pass_;
    return id;
}

HALFTONE_OUT_OF_LINE void graph::release_reference(index slot) noexcept {
    if (--slots_[at(slot)].references != 0) return;
    drop_gradient(slot);
    free_slots_.push_back(slot);
}

HALFTONE_OUT_OF_LINE std::byte* graph::make_gradient(index slot, std::size_t bytes) {
    const index block = make_block(bytes);
    drop_gradient(slot);
    slots_[at(slot)].gradient = block;
    return data(block);
}

HALFTONE_OUT_OF_LINE void graph::give_value(index from, index slot) {
    const index block = value_block(from);
    retain_block(block);
    drop_gradient(slot);
    slots_[at(slot)].gradient = block;
}

HALFTONE_OUT_OF_LINE void graph::share_gradient(index from, index slot) {
    const index block = slots_[at(from)].gradient;
    retain_block(block);
    slots_[at(slot)].gradient = block;
}

HALFTONE_OUT_OF_LINE void graph::run_backward(void* tape) {
    tape_ = tape;
    runs_backward_ = true;
    try {
        run_records(0);
    } catch (...) {
        clear();
        throw;
    }
    clear();
}

HALFTONE_OUT_OF_LINE void graph::clear() noexcept {
    while (!records_.empty()) {
        const record last = records_.back();
        records_.pop_back();
        last.destroy(last.payload);
    }
    memory_.rewind();
    runs_backward_ = false;
    ++pass_;
}

HALFTONE_OUT_OF_LINE void graph::enter(const char* list, int index) {
    if (open_ < 0 && records_.empty()) list_layers_.clear();
    list_layers_.push_back({list, index, open_, records_.size(), static_cast<std::size_t>(-1)});
    open_ = static_cast<int>(list_layers_.size()) - 1;
}

HALFTONE_OUT_OF_LINE void graph::leave() noexcept {
    list_layer& ended = list_layers_[static_cast<std::size_t>(open_)];
    ended.end = records_.size();
    open_ = ended.outer;
}

HALFTONE_OUT_OF_LINE void graph::run_records(std::size_t left) {
    while (records_.size() > left) {
        const record last = records_.back();
        {
            running_ = {last.operation, -1, records_.size() - 1};
            const halftone::range here(listener, last.operation, pass::backward);
            tell_layer();
            last.backward(tape_, last.payload);
        }
        records_.pop_back();
        last.destroy(last.payload);
        if (left == 0 && gradients != nullptr) gradients->end_operation();
    }
}

HALFTONE_OUT_OF_LINE std::string graph::place_of_last() const {
    if (running_.operation == nullptr) return {};
    const std::string layer = layer_of_last();
    return std::string(running_.operation) + " (" +
           name(running_.record == no_record ? halftone::pass::forward : halftone::pass::backward) + ")" +
           (layer.empty() ? "" : " of " + layer);
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
