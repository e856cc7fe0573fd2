// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in store.hpp that are no templates.
#pragma once

#include <halftone/memory/store.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

HALFTONE_OUT_OF_LINE void store::commit(std::uint64_t seed) {
    if (committed_ || is_waiting_) fail<state_error>("store: committed twice");
    seed_ = seed;
    if (adapters_.options() != nullptr) freeze_base();
    if (memory_->defers_parameters()) {
        amaxes_.commit(*memory_);
        is_waiting_ = true;
        return;
    }
    take_memory();
    amaxes_.commit(*memory_);
    committed_ = true;
    fill([](std::size_t) { return true; });
}

HALFTONE_OUT_OF_LINE void store::freeze_base() {
    adapters_.check_targets();
    const std::vector<std::string>& trained = adapters_.options()->trained;
    std::vector<bool> is_used(trained.size());
    for (entry& e : entries_) {
        bool stays = e.is_adapter;
        for (std::size_t i = 0; i < trained.size() && !e.is_state; ++i) {
            if (!path_matches(trained[i].c_str(), e.path.c_str())) continue;
            stays = is_used[i] = true;
        }
        e.frozen = !stays;
        e.is_base = !stays && !e.is_state;
    }
    for (std::size_t i = 0; i < trained.size(); ++i) {
        if (!is_used[i])
            fail<argument_error>("add_adapters: the model has no parameter at ", trained[i],
                                 ", which is to be trained");
    }
    lay_out();
}

HALFTONE_OUT_OF_LINE void store::take_memory() {
    for (group& g : groups_) {
        try {
            g.master = buffer(*memory_, g.masters * g.param_bytes, memory_kind::master);
            g.copy = buffer(*memory_, g.copies * g.copy_bytes, memory_kind::copy);
        } catch (const out_of_memory& e) {
            fail<out_of_memory>(e.what(),
                                "; asked for by the model's parameters; its largest layers: ", largest_layers());
        }
    }
}

HALFTONE_OUT_OF_LINE void store::end_waiting(const std::function<bool(std::size_t index)>& are_wanted) {
    if (!is_waiting_) return;
    take_memory();
    committed_ = true, is_waiting_ = false;
    fill(are_wanted);
}

HALFTONE_OUT_OF_LINE void store::fill(const std::function<bool(std::size_t index)>& are_wanted) {
    staging host;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
        const entry& e = entries_[i];
        const group& g = groups_[e.group];
        tell(e, +1);
        // Optimizers also update the gaps between parameters, so these must hold valid values: zeros, and what they round to.
        const std::size_t gap = room(e) - e.count;
        const auto clear_gap = [&](const buffer& slab, std::size_t place, std::size_t each) {
            if (place != nowhere) memory_->clear(slab.data() + (place + e.count) * each, gap * each);
        };
        clear_gap(g.master, e.master, g.param_bytes);
        if (g.coding == nullptr) clear_gap(g.copy, e.copy, g.copy_bytes);
        if (!memory_->has_contents()) continue;
        if (g.round != nullptr && e.master != nowhere) round(g, e.master + e.count, e.copy + e.count, gap, host);
        if (are_wanted(i)) fill_here(i, host);
    }
}

HALFTONE_OUT_OF_LINE void store::write_with_copies(std::size_t index, std::size_t first, const std::byte* values,
                                                   std::size_t count) {
    write(index, first, values, count);
    const entry& e = entries_[index];
    const group& g = groups_[e.group];
    if (g.round == nullptr || is_divided()) return;
    staging host;
    for (std::size_t done = 0; done < count; done += staging::elements) {
        const std::size_t some = std::min(staging::elements, count - done);
        g.round(values + done * g.param_bytes, host.copy, some);
        memory_->write(g.copy.data() + (e.copy + first + done) * g.copy_bytes, host.copy, some * g.copy_bytes);
    }
}

HALFTONE_OUT_OF_LINE void store::write(std::size_t index, std::size_t first, const std::byte* values, std::size_t count) {
    check_committed();
    await_readers();
    const entry& e = entries_[index];
    staging host;
    const group& g = groups_[e.group];
    if (is_divided()) {
        const element_range here = masters_here(e);
        const std::size_t begin = std::max(first, here.first), end = std::min(first + count, here.first + here.count);
        if (begin >= end) return;
        values += (begin - first) * (g.split == nullptr ? g.param_bytes : sizeof(float));
        first = begin, count = end - begin;
    }
    if (g.split == nullptr) return write(g, e, first, values, count, host);
    for (std::size_t done = 0; done < count; done += staging::elements) {
        write(g, e, first + done, values + done * sizeof(float), std::min(staging::elements, count - done), host);
    }
}

HALFTONE_OUT_OF_LINE void store::refresh() {
    check_committed();
    await_readers();
    if (is_divided()) return refresh_runs();
    staging host;
    for (const group& g : groups_) {
        if (g.round != nullptr && g.masters == g.copies) round(g, 0, 0, g.masters, host);
    }
    for (const entry& e : entries_) {
        const group& g = groups_[e.group];
        if (g.round != nullptr && g.masters != g.copies && e.master != nowhere)
            round(g, e.master, e.copy, e.count, host);
        if (g.coding != nullptr) encode_master(e);
    }
}

HALFTONE_OUT_OF_LINE void store::refresh(std::size_t index) {
    check_committed();
    await_readers();
    if (is_divided()) return refresh_runs();
    const entry& e = entries_[index];
    const group& g = groups_[e.group];
    staging host;
    if (g.round != nullptr && e.master != nowhere) round(g, e.master, e.copy, e.count, host);
    if (g.coding != nullptr) encode_master(e);
}

HALFTONE_OUT_OF_LINE void store::check_blocks(const entry& e) const {
    const detail::weight_coding& of = *groups_[e.group].coding;
    if (static_cast<std::size_t>(e.width) % of.block != 0)
        fail<shape_error>("store: ", e.path, " has rows of ", e.width, " numbers, which are no whole blocks of ",
                          of.name, ": ", of.block, "; give its layer a policy without the role `copy`");
}

HALFTONE_OUT_OF_LINE void store::write_coded(std::size_t index, const float* values) {
    check_committed();
    await_readers();
    const entry& e = entries_[index];
    const group& g = groups_[e.group];
    if (e.master != nowhere) {
        std::vector<std::byte> masters(e.count * g.param_bytes);
        g.param_type->narrow(values, e.count, masters.data());
        write(index, 0, masters.data(), e.count);
    }
    encode(e, values);
}

HALFTONE_OUT_OF_LINE void store::encode(const entry& e, const float* values) {
    const group& g = groups_[e.group];
    std::vector<std::byte> codes(g.coding->bytes(e.count));
    g.coding->encode(values, e.count, codes.data());
    memory_->write(g.copy.data() + e.copy, codes.data(), codes.size());
}

HALFTONE_OUT_OF_LINE std::vector<std::byte> store::codes_of(const entry& e) const {
    const group& g = groups_[e.group];
    std::vector<std::byte> codes(g.coding->bytes(e.count));
    memory_->read(codes.data(), g.copy.data() + e.copy, codes.size());
    return codes;
}

HALFTONE_OUT_OF_LINE void store::read_coded(const entry& e, std::size_t first, std::size_t count, float* to) const {
    const group& g = groups_[e.group];
    const std::vector<std::byte> codes = codes_of(e);
    g.coding->decode(codes.data(), e.count, first, count, to);
}

HALFTONE_OUT_OF_LINE void store::encode_master(const entry& e) {
    const group& g = groups_[e.group];
    if (e.master == nowhere || masters_here(e).count < e.count) return;
    std::vector<std::byte> masters(e.count * g.param_bytes);
    std::vector<float> values(e.count);
    memory_->read(masters.data(), g.master.data() + e.master * g.param_bytes, masters.size());
    g.param_type->widen(masters.data(), e.count, values.data());
    encode(e, values.data());
}

HALFTONE_OUT_OF_LINE void store::fill_coded(const entry& e) {
    const group& g = groups_[e.group];
    std::vector<std::byte> masters(e.count * g.param_bytes);
    std::vector<float> values(e.count);
    g.fill(e.values, masters.data(), 0, e.count, seed_, e.number);
    g.param_type->widen(masters.data(), e.count, values.data());
    encode(e, values.data());
    if (e.master != nowhere) write_part(g.master, e.master, g.param_bytes, masters_here(e), 0, masters.data(), e.count);
}

HALFTONE_OUT_OF_LINE std::size_t store::freeze(const std::string& pattern) {
    if (!is_waiting_) check_committed();
    await_readers();
    if (is_divided()) {
        for (const entry& e : entries_) {
            if (!e.frozen && path_matches(pattern.c_str(), e.path.c_str()))
                fail<state_error>("store: freeze() of ", e.path,
                                  ", which is sharded; freeze parameters before ht::shard");
        }
    }
    std::size_t named = 0, changed = 0;
    for (entry& e : entries_) {
        if (!path_matches(pattern.c_str(), e.path.c_str())) continue;
        ++named;
        changed += e.frozen ? 0 : 1;
        e.frozen = true;
    }
    if (changed != 0 && is_waiting_) lay_out();
    if (changed != 0 && !is_waiting_) drop_frozen_masters();
    return named;
}

HALFTONE_OUT_OF_LINE void store::divide(detail::store_sharding& sharding, const detail::run_options& options) {
    if (!is_waiting_) check_committed();
    await_readers();
    if (is_divided()) fail<state_error>("store: its slabs are divided already");
    for (const entry& e : entries_) detail::expect_frozen_codes("shard", e, groups_[e.group]);
    sharding_ = &sharding;
    rank_ = options.rank;
    keep_runs(options);
}

HALFTONE_OUT_OF_LINE detail::store_sharding* store::sharding() const {
    if (is_divided() && sharding_ == nullptr)
        fail<state_error>(
            "store: the ht::shard that divided its parameters has been destroyed; it must outlive their use");
    return sharding_;
}

HALFTONE_OUT_OF_LINE bool store::is_here(const entry& e, std::size_t first, std::size_t count) const {
    check_committed();
    const auto has = [&](const run_place store_run::*slab) {
        const element_range part = here(e, slab);
        return !(runs_[e.run].*slab).is_there() || (part.first <= first && first + count <= part.first + part.count);
    };
    return !is_divided() || (has(&store_run::master) && has(&store_run::copy));
}

HALFTONE_OUT_OF_LINE std::size_t store::size() const {
    std::size_t n = 0;
    for (const entry& e : entries_) n += e.is_state ? 0 : e.count;
    return n;
}

HALFTONE_OUT_OF_LINE std::size_t store::bytes() const {
    std::size_t n = 0;
    for (const group& g : groups_)
        n += round_up(g.masters * g.param_bytes, block_alignment) + round_up(g.copies * g.copy_bytes, block_alignment);
    return n;
}

HALFTONE_OUT_OF_LINE std::size_t store::find_group(const void* key) const {
    for (std::size_t i = 0; i < groups_.size(); ++i) {
        if (groups_[i].key == key) return i;
    }
    return nowhere;
}

HALFTONE_OUT_OF_LINE std::size_t store::group_of(const detail::storage_layout& layout) {
    if (const std::size_t found = find_group(&layout); found != nowhere) return found;
    groups_.push_back({layout, &layout});
    return groups_.size() - 1;
}

HALFTONE_OUT_OF_LINE void store::write(const group& g, const entry& e, std::size_t first, const std::byte* values, std::size_t count,
                         staging& host) {
    const std::byte* masters = values;
    if (g.split != nullptr) {
        g.split(values, host.rest, host.copy, count);
        memory_->write(g.copy.data() + (e.copy + first) * g.copy_bytes, host.copy, count * g.copy_bytes);
        masters = host.rest;
    }
    memory_->write(g.master.data() + (e.master + first) * g.param_bytes, masters, count * g.param_bytes);
}

HALFTONE_OUT_OF_LINE void store::round(const group& g, std::size_t master, std::size_t copy, std::size_t all, staging& host) {
    for (std::size_t first = 0; first < all; first += staging::elements) {
        const std::size_t count = std::min(staging::elements, all - first);
        memory_->read(host.master, g.master.data() + (master + first) * g.param_bytes, count * g.param_bytes);
        g.round(host.master, host.copy, count);
        memory_->write(g.copy.data() + (copy + first) * g.copy_bytes, host.copy, count * g.copy_bytes);
    }
}

HALFTONE_OUT_OF_LINE std::string store::run_time_path(const char* path, const char* leaf) const {
    std::string text;
    for (int position = 0; *path != 0; ++position) {
        const std::size_t size = std::strcspn(path, ".");
        const auto here =
            std::find_if(indices_.begin(), indices_.end(), [&](const list_index& i) { return i.position == position; });
        text += here == indices_.end() ? std::string(path, size) : std::to_string(here->index);
        text += '.';
        path += path[size] == '.' ? size + 1 : size;
    }
    return text + leaf;
}

HALFTONE_OUT_OF_LINE void store::tell_slab(memory_kind kind, const entry& e, std::size_t place, const element_range& part,
                             std::size_t each, const std::byte* slab) const {
    if (part.count == 0) return;
    memory_->usage().note_parameter(kind, e.path.c_str(), static_cast<std::ptrdiff_t>(part.count * each),
                                    slab == nullptr ? nullptr : slab + (place + part.first) * each);
}

HALFTONE_OUT_OF_LINE void store::refresh_runs() {
    staging host;
    for (const entry& e : entries_) {
        const group& g = groups_[e.group];
        const element_range part = masters_here(e);
        if (g.round != nullptr && e.master != nowhere && part.count != 0)
            round(g, e.master + part.first, e.copy + part.first, std::min(part.count, e.count - part.first), host);
    }
    sharding()->gather();
}

HALFTONE_OUT_OF_LINE void store::keep_runs(const detail::run_options& options) {
    const std::vector<entry> before = entries_;
    for (const entry& e : entries_) {
        if (!is_waiting_) tell(e, -1);
    }
    runs_ = detail::lay_out_runs(entries_, groups_, options);
    ++layout_;
    change();
    for (std::size_t i = 0; i < groups_.size(); ++i) {
        group& g = groups_[i];
        buffer master(*memory_, g.masters * g.param_bytes, memory_kind::master);
        memory_->clear(master.data(), master.bytes());
        const detail::run_mover mover{*memory_, before, entries_, runs_, rank_, i};
        if (!is_waiting_) mover.move(&entry::master, &store_run::master, g.param_bytes, g.master, master);
        g.master = std::move(master);
        buffer copy(*memory_, g.copies * g.copy_bytes, memory_kind::copy);
        memory_->clear(copy.data(), copy.bytes());
        if (!is_waiting_ && g.coding == nullptr) mover.move(&entry::copy, &store_run::copy, g.copy_bytes, g.copy, copy);
        if (!is_waiting_ && g.coding != nullptr) mover.move_codes(g, g.copy, copy);
        g.copy = std::move(copy);
    }
    for (const entry& e : entries_) tell(e, +1);
    if (!is_waiting_) return;
    committed_ = true, is_waiting_ = false;
    if (!memory_->has_contents()) return;
    staging host;
    for (std::size_t i = 0; i < entries_.size(); ++i) fill_here(i, host);
}

HALFTONE_OUT_OF_LINE void store::fill_here(std::size_t index, staging& host) {
    const entry& e = entries_[index];
    const group& g = groups_[e.group];
    if (g.coding != nullptr) return fill_coded(e);
    const element_range masters = e.master == nowhere ? element_range{} : masters_here(e),
                        copies = e.copy == nowhere ? element_range{} : here(e, &store_run::copy);
    const element_range all = copies.count > masters.count ? copies : masters;  // one has the other's elements, too
    const std::size_t end = std::min(all.first + all.count, e.count);
    for (std::size_t first = all.first; first < end; first += staging::elements) {
        const std::size_t count = std::min(staging::elements, end - first);
        g.fill(e.values, host.master, first, count, seed_, e.number);
        const std::byte* values = host.master;
        if (g.split != nullptr) {
            g.split(host.master, host.rest, host.copy, count);
            values = host.rest;
        } else if (g.round != nullptr) {
            g.round(host.master, host.copy, count);
        }
        write_part(g.master, e.master, g.param_bytes, masters, first, values, count);
        write_part(g.copy, e.copy, g.copy_bytes, copies, first, host.copy, count);
    }
}

HALFTONE_OUT_OF_LINE void store::write_part(const buffer& slab, std::size_t place, std::size_t each,
                                            const element_range& part, std::size_t first, const std::byte* values,
                                            std::size_t count) {
    const std::size_t begin = std::max(first, part.first), end = std::min(first + count, part.first + part.count);
    if (begin < end)
        memory_->write(slab.data() + (place + begin) * each, values + (begin - first) * each, (end - begin) * each);
}

HALFTONE_OUT_OF_LINE void store::place(entry& e) {
    group& g = groups_[e.group];
    const std::size_t room = round_up(e.count, granule);
    const auto take = [room](std::size_t& end) { return std::exchange(end, end + room); };
    e.copy = g.copy_bytes == 0     ? nowhere
             : g.coding != nullptr ? std::exchange(g.copies, g.copies + g.room_of_codes(e))
                                   : take(g.copies);
    e.master = e.frozen && g.copy_bytes != 0 && !e.keeps_master ? nowhere : take(g.masters);
    e.gradient = e.frozen ? nowhere : take(g.gradients);
    e.moment = e.gradient, e.order = e.master;
    g.moments = g.gradients;
}

HALFTONE_OUT_OF_LINE void store::lay_out() {
    for (group& g : groups_) g.masters = g.copies = g.gradients = g.moments = 0;
    for (entry& e : entries_) place(e);
    ++layout_;
    change();
}

HALFTONE_OUT_OF_LINE void store::tell(const entry& e, std::ptrdiff_t sign) const {
    const group& g = groups_[e.group];
    const auto note = [&](memory_kind kind, const buffer& slab, std::size_t place, const element_range& part,
                          std::size_t each) {
        const bool is_there = place != nowhere && part.count != 0;
        const auto bytes = static_cast<std::ptrdiff_t>(part.count * each);
        memory_->usage().note_parameter(
            kind, e.path.c_str(), is_there ? sign * bytes : 0,
            is_there && slab.data() != nullptr ? slab.data() + (place + part.first) * each : nullptr);
    };
    note(memory_kind::master, g.master, e.master, masters_here(e), g.param_bytes);
    const element_range copies = g.coding == nullptr ? here(e, &store_run::copy) : element_range{0, g.room_of_codes(e)};
    note(memory_kind::copy, g.copy, e.copy, copies, g.copy_bytes);
}

HALFTONE_OUT_OF_LINE void store::drop_frozen_masters() {
    std::vector<std::size_t> before;
    for (const entry& e : entries_) {
        before.push_back(e.master);
        tell(e, -1);
    }
    lay_out();
    for (std::size_t i = 0; i < groups_.size(); ++i) {
        group& g = groups_[i];
        buffer kept(*memory_, g.masters * g.param_bytes, memory_kind::master);
        memory_->clear(kept.data(), kept.bytes());
        for (std::size_t j = 0; j < entries_.size(); ++j) {
            const entry& e = entries_[j];
            if (e.group == i && e.master != nowhere) move_master(g, before[j], kept.data(), e);
        }
        g.master = std::move(kept);
    }
    for (const entry& e : entries_) tell(e, +1);
}

HALFTONE_OUT_OF_LINE void store::move_master(const group& g, std::size_t before, std::byte* kept, const entry& e) {
    std::vector<std::byte> host(e.count * g.param_bytes);
    memory_->read(host.data(), g.master.data() + before * g.param_bytes, host.size());
    memory_->write(kept + e.master * g.param_bytes, host.data(), host.size());
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
