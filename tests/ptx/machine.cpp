// SPDX-License-Identifier: MIT
#include <algorithm>
#include <bit>
#include <iterator>
#include <string_view>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include "ptx/machine.hpp"

namespace halftone::ptx {

namespace {
constexpr std::uint64_t most_steps = std::uint64_t{1} << 33;

struct special_register {
    std::string_view name;
    std::uint64_t (*value)(const block_state&, unsigned thread, unsigned lane);
};
constexpr special_register special_registers[] = {
    {"%tid.x", [](const auto& b, unsigned t, unsigned) -> std::uint64_t { return t % b.how.block.x; }},
    {"%tid.y", [](const auto& b, unsigned t, unsigned) -> std::uint64_t { return t / b.how.block.x % b.how.block.y; }},
    {"%tid.z", [](const auto& b, unsigned t, unsigned) -> std::uint64_t { return t / b.how.block.x / b.how.block.y; }},
    {"%ntid.x", [](const auto& b, unsigned, unsigned) -> std::uint64_t { return b.how.block.x; }},
    {"%ntid.y", [](const auto& b, unsigned, unsigned) -> std::uint64_t { return b.how.block.y; }},
    {"%ntid.z", [](const auto& b, unsigned, unsigned) -> std::uint64_t { return b.how.block.z; }},
    {"%ctaid.x", [](const auto& b, unsigned, unsigned) -> std::uint64_t { return b.at.x; }},
    {"%ctaid.y", [](const auto& b, unsigned, unsigned) -> std::uint64_t { return b.at.y; }},
    {"%ctaid.z", [](const auto& b, unsigned, unsigned) -> std::uint64_t { return b.at.z; }},
    {"%nctaid.x", [](const auto& b, unsigned, unsigned) -> std::uint64_t { return b.how.grid.x; }},
    {"%nctaid.y", [](const auto& b, unsigned, unsigned) -> std::uint64_t { return b.how.grid.y; }},
    {"%nctaid.z", [](const auto& b, unsigned, unsigned) -> std::uint64_t { return b.how.grid.z; }},
    {"%laneid", [](const auto&, unsigned, unsigned l) -> std::uint64_t { return l; }},
    {"%warpid", [](const auto&, unsigned t, unsigned) -> std::uint64_t { return t / lanes; }},
    {"%lanemask_lt", [](const auto&, unsigned, unsigned l) -> std::uint64_t { return (1u << l) - 1; }},
    {"%lanemask_le", [](const auto&, unsigned, unsigned l) -> std::uint64_t { return (2u << l) - 1; }},
    {"%lanemask_eq", [](const auto&, unsigned, unsigned l) -> std::uint64_t { return 1u << l; }},
    {"%lanemask_gt", [](const auto&, unsigned, unsigned l) -> std::uint64_t { return ~((2u << l) - 1); }},
    {"%lanemask_ge", [](const auto&, unsigned, unsigned l) -> std::uint64_t { return ~((1u << l) - 1); }},
};
}  // namespace

std::size_t special_register_named(std::string_view name) {
    for (std::size_t r = 0; r < std::size(special_registers); ++r)
        if (special_registers[r].name == name) return r;
    throw failure("unknown register " + std::string(name));
}

warp::warp(block_state& b, const function& kernel, int first_thread, int threads)
    : block_(b), first_thread_(first_thread) {
    for (int l = 0; l < lanes; ++l) state_[l] = l < threads ? lane_state::runs : lane_state::is_over;
    begin(frame_, kernel);
}

void warp::begin(frame& f, const function& of) {
    f.f = &of;
    f.registers.assign(static_cast<std::size_t>(of.registers) * lanes, ~std::uint64_t{0});
    f.parameters.resize(of.parameter_bytes * lanes);
    f.local.assign(of.local_bytes * lanes + 16, std::byte{0xff});
    for (const auto& [r, bits] : of.constants)
        for (int l = 0; l < lanes; ++l) f.registers[static_cast<std::size_t>(r * lanes + l)] = bits;
    for (const auto& [r, which] : of.special_registers) {
        const auto value = special_registers[which].value;
        for (int l = 0; l < lanes; ++l)
            f.registers[static_cast<std::size_t>(r * lanes + l)] =
                value(block_, static_cast<unsigned>(first_thread_ + l), static_cast<unsigned>(l));
    }
}

void warp::fail(const instruction& i, const std::string& why) const {
    const bool is_long = i.text.size() > 160;
    throw failure(why + ": " + (is_long ? i.text.substr(0, 150) + " ..." : i.text) + ", block (" +
                  std::to_string(block_.at.x) + ", " + std::to_string(block_.at.y) + ", " +
                  std::to_string(block_.at.z) + "), warp " + std::to_string(first_thread_ / lanes) + " of " +
                  frame_.f->name);
}

std::uint64_t warp::generic(space s, std::uint64_t address, int lane) {
    switch (s) {
        case space::shared:
            return reinterpret_cast<std::uint64_t>(block_.shared.data()) + address;
        case space::local:
            return reinterpret_cast<std::uint64_t>(frame_.local.data()) +
                   frame_.f->local_bytes * static_cast<unsigned>(lane) + address;
        case space::param:
            if ((address & kernel_parameter) == 0)
                throw failure("the address of a call's parameter in " + frame_.f->name);
            return reinterpret_cast<std::uint64_t>(block_.how.parameters.data()) + (address & ~kernel_parameter);
        default:
            return address;
    }
}
std::uint64_t warp::from_generic(space s, std::uint64_t address, int lane) {
    return s == space::param ? address : address - generic(s, 0, lane);
}

std::byte* warp::memory(const instruction& i, space s, std::uint64_t address, std::uint64_t bytes, int lane,
                        access how) {
    if (address % bytes != 0) fail(i, "misaligned");
    if (s == space::shared) {
        address &= 0xffffffffu;
        if (address + bytes > block_.shared.size()) fail(i, "beyond the block's shared memory");
        if (block_.shared.is_race(address, bytes, how, first_thread_ + lane, order_))
            fail(i, "a race in shared memory");
        auto& pending = block_.pending;
        const bool writes = how != access::reads;
        if (!pending.is_idle())
            if (const char* const why = pending.objection(address, bytes, writes, known_)) fail(i, why);
        if (writes) pending.note_write(address, bytes, first_thread_ + lane);
        return block_.shared.data() + address;
    }
    if (s == space::local) {
        if (address + bytes > frame_.f->local_bytes) fail(i, "beyond the thread's local memory");
        return frame_.local.data() + frame_.f->local_bytes * static_cast<unsigned>(lane) + address;
    }
    if (s == space::param) {
        if ((address & kernel_parameter) != 0) {
            address &= ~kernel_parameter;
            if (address + bytes > 8 * block_.how.parameters.size()) fail(i, "beyond the kernel's parameters");
            return reinterpret_cast<std::byte*>(const_cast<std::uint64_t*>(block_.how.parameters.data())) + address;
        }
        if (address + bytes > frame_.f->parameter_bytes) fail(i, "beyond a call's parameters");
        return frame_.parameters.data() + frame_.f->parameter_bytes * static_cast<unsigned>(lane) + address;
    }
    const auto lies_in = [&](const void* data, std::uint64_t size) {
        const auto begin = reinterpret_cast<std::uint64_t>(data);
        return address >= begin && address + bytes <= begin + size;
    };
    if (s == space::generic && lies_in(block_.shared.data(), block_.shared.size())) {
        const auto at = address - reinterpret_cast<std::uint64_t>(block_.shared.data());
        return memory(i, space::shared, at, bytes, lane, how);
    }
#if defined(__SANITIZE_ADDRESS__)
    if (__asan_region_is_poisoned(reinterpret_cast<void*>(address), bytes) != nullptr)
        fail(i, "memory that is not allocated, lane " + std::to_string(lane));
#endif
    const auto is_in_last = [&] { return address >= block_.last.begin && address + bytes <= block_.last.end; };
    if (is_in_last()) return reinterpret_cast<std::byte*>(address);
    if (const range found = block_.may_touch(address); found.end != 0) block_.last = found;
    bool is_there = is_in_last();
    if (!is_there && s == space::generic)
        is_there = lies_in(frame_.local.data(), frame_.local.size()) ||
                   lies_in(block_.how.parameters.data(), 8 * block_.how.parameters.size());
    if (!is_there)
        for (const auto& [name, words] : block_.code.globals())
            is_there = is_there || lies_in(words.data(), 8 * words.size());
    if (!is_there) fail(i, "memory that is not the kernel's, lane " + std::to_string(lane));
    return reinterpret_cast<std::byte*>(address);
}

void warp::wait_for_copies(const instruction& i, int lane, std::size_t groups_left) {
    while (copies_[lane].size() > groups_left) {
        for (const pending_copy& c : copies_[lane].front()) {
            std::byte* const to = memory(i, space::shared, c.to, c.bytes, lane, access::writes);
            std::memset(to, 0, c.bytes);
            if (c.valid != 0) {
                // The whole access must be aligned, whichever part of it is used.
                std::memcpy(to, memory(i, space::global, c.from, std::bit_floor(c.valid), lane, access::reads),
                            c.valid);
            }
        }
        copies_[lane].erase(copies_[lane].begin());
    }
}

bool warp::is_over() const {
    for (const lane_state s : state_)
        if (s != lane_state::is_over) return false;
    return true;
}
bool warp::waits() const {
    return std::any_of(state_, state_ + lanes, [](lane_state s) { return s == lane_state::waits; });
}
const instruction& warp::last_wait() const {
    const auto lane = std::find(state_, state_ + lanes, lane_state::waits) - state_;
    return frame_.f->code[pc_[lane] - 1];
}
const instruction* warp::barrier() const {
    const instruction* at = nullptr;
    for (int l = 0; l < lanes; ++l)
        if (state_[l] == lane_state::is_at_barrier) at = &frame_.f->code[pc_[l]];
    return at;
}
void warp::pass_barrier() {
    for (int l = 0; l < lanes; ++l) {
        if (state_[l] != lane_state::is_at_barrier) continue;
        state_[l] = lane_state::runs;
        ++pc_[l];
    }
}
void warp::vote(bool& any, bool& all) const {
    const instruction* const i = barrier();
    if (i == nullptr || i->to.empty()) return;
    for (int l = 0; l < lanes; ++l) {
        if (state_[l] != lane_state::is_at_barrier) continue;
        const bool mine = frame_.registers[static_cast<std::size_t>(i->from.back() * lanes + l)] != 0;
        any = any || mine;
        all = all && mine;
    }
}
void warp::tell(bool any, bool all) {
    const instruction* const i = barrier();
    if (i == nullptr || i->to.empty()) return;
    for (int l = 0; l < lanes; ++l)
        if (state_[l] == lane_state::is_at_barrier) values(i->to[0])[l] = (i->option == 'o' ? any : all) ? 1 : 0;
}

void warp::call(const instruction& i, lane_mask m) {
    frame callee;
    const function& f = block_.code.named(i.callee);
    begin(callee, f);
    const auto& given = frame_.f->given[static_cast<std::size_t>(i.option)];
    const auto pass = [&](const variable& outer, const variable& inner, bool is_result) {
        for (int l = 0; l < lanes; ++l) {
            if ((m >> l & 1) == 0) continue;
            std::byte* const mine =
                frame_.parameters.data() + frame_.f->parameter_bytes * static_cast<unsigned>(l) + outer.offset;
            std::byte* const its =
                callee.parameters.data() + f.parameter_bytes * static_cast<unsigned>(l) + inner.offset;
            std::memcpy(is_result ? mine : its, is_result ? its : mine, inner.bytes);
        }
    };
    for (std::size_t p = 0; p < f.parameters.size(); ++p) pass(given[f.results.size() + p], f.parameters[p], false);
    std::uint32_t pc[lanes];
    lane_state state[lanes];
    std::memcpy(pc, pc_, sizeof pc);
    std::memcpy(state, state_, sizeof state);
    for (int l = 0; l < lanes; ++l) {
        pc_[l] = 0;
        state_[l] = (m >> l & 1) != 0 ? lane_state::runs : lane_state::is_over;
    }
    std::swap(frame_, callee);
    ++depth_;
    advance();
    if (!is_over()) fail(i, "a barrier in a function that is called");
    --depth_;
    std::swap(frame_, callee);
    std::memcpy(pc_, pc, sizeof pc);
    std::memcpy(state_, state, sizeof state);
    for (std::size_t r = 0; r < f.results.size(); ++r) pass(given[r], f.results[r], true);
}

void warp::advance() {
    std::replace(state_, state_ + lanes, lane_state::waits, lane_state::runs);
    for (;;) {
        // The lanes furthest behind, and the instruction at which they meet the next ones.
        std::uint32_t at = ~0u, next = ~0u;
        for (int l = 0; l < lanes; ++l)
            if (state_[l] == lane_state::runs && pc_[l] < at) at = pc_[l];
        if (at == ~0u) break;
        lane_mask group = 0;
        for (int l = 0; l < lanes; ++l) {
            const bool is_alive = state_[l] == lane_state::runs || state_[l] == lane_state::is_parked;
            if (is_alive && pc_[l] == at) {
                group |= lane_mask{1} << l;
                state_[l] = lane_state::runs;
            } else if (is_alive && pc_[l] > at && pc_[l] < next) {
                next = pc_[l];
            }
        }
        const auto each = [&](const auto& f) {
            for (lane_mask rest = group; rest != 0; rest &= rest - 1) f(std::countr_zero(rest));
        };
        for (bool is_together = true; is_together;) {
            const instruction& i = frame_.f->code[at];
            if (++block_.steps > most_steps) fail(i, "it does not end");
            ++frame_.f->executed[at];
            lane_mask m = group;
            if (i.guard >= 0) {
                const std::uint64_t* const p = values(i.guard);
                each([&](int l) {
                    if ((p[l] != 0) == i.is_guard_negated) m &= ~(lane_mask{1} << l);
                });
            }
            switch (i.kind) {
                case flow::next:
                    if (m != 0) i.run(*this, i, m);
                    ++at;
                    is_together = at != next;
                    break;
                case flow::branch:
                    each([&](int l) { pc_[l] = (m >> l & 1) != 0 ? i.target : at + 1; });
                    if (m == group && i.target > at && i.target < next) {
                        at = i.target;
                    } else if (m == 0 && at + 1 != next) {
                        ++at;
                    } else {
                        is_together = false;
                    }
                    continue;
                case flow::branch_table:
                    each([&](int l) {
                        pc_[l] = (m >> l & 1) != 0 ? i.targets.at(get<std::uint32_t>(i.from[0], l)) : at + 1;
                    });
                    is_together = false;
                    continue;
                case flow::call:
                    each([&](int l) { pc_[l] = at; });
                    if (m != 0) call(i, m);
                    ++at;
                    is_together = at != next;
                    break;
                case flow::leave:
                    each([&](int l) {
                        pc_[l] = at + 1;
                        if ((m >> l & 1) != 0) state_[l] = lane_state::is_over;
                    });
                    is_together = false;
                    continue;
                case flow::block_barrier:
                    if (m != group) fail(i, "a barrier under a condition");
                    each([&](int l) {
                        pc_[l] = at;
                        state_[l] = lane_state::is_at_barrier;
                    });
                    is_together = false;
                    continue;
                case flow::wait:
                    if (m != 0) i.run(*this, i, m);
                    each([&](int l) {
                        pc_[l] = at + 1;
                        if ((m >> l & 1) != 0 && values(i.to[0])[l] == 0) state_[l] = lane_state::waits;
                    });
                    is_together = false;
                    continue;
                case flow::warp_wide: {
                    lane_mask wanted = ~lane_mask{0};
                    if (i.members >= 0) wanted = get<std::uint32_t>(i.members, std::countr_zero(m == 0 ? group : m));
                    for (int l = 0; l < lanes; ++l)
                        if (state_[l] == lane_state::is_over) wanted &= ~(lane_mask{1} << l);
                    if (m != 0 && (wanted & ~m) != 0) {
                        each([&](int l) {
                            pc_[l] = at;
                            state_[l] = lane_state::is_parked;
                        });
                        is_together = false;
                        continue;
                    }
                    if (m != 0) i.run(*this, i, m);
                    ++at;
                    is_together = at != next;
                    break;
                }
            }
            if (!is_together) each([&](int l) { pc_[l] = at; });
        }
    }
    if (waits()) return;
    for (int l = 0; l < lanes; ++l)
        if (state_[l] == lane_state::is_parked) fail(frame_.f->code[pc_[l]], "lanes that never meet");
}

}  // namespace halftone::ptx
