// SPDX-License-Identifier: MIT
/// \file
/// Runs a kernel block by block. The warps of a block take turns: each runs until it cannot continue; then all pass a barrier, or
/// those that wait for an mbarrier test it again.
#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "ptx/machine.hpp"

namespace halftone::ptx {

namespace {

constexpr int most_idle_turns = 1000;  // turns without any change of an mbarrier

/// Checks at the end of a block.
void check_ends(block_state& block, std::deque<warp>& warps) {
    if (!block.pending.copies.empty())
        warps.front().fail(*block.pending.copies.front().by, "a bulk copy that no thread waits for");
    if (!block.pending.stores.empty()) {
        const auto& store = block.pending.stores.front();
        warps[static_cast<std::size_t>(store.thread / lanes)].fail(*store.by,
                                                                   "a bulk store that its thread does not wait for");
    }
    for (std::size_t w = 0; w < warps.size(); ++w) {
        const auto begun = [&](std::size_t of) { return of < warps.size() ? warps[of].sums().done : 0; };
        if (begun(w) != begun(w / 4 * 4))
            throw failure("warps of a warpgroup that have not all come to the same wgmma, of warps " +
                          std::to_string(w / 4 * 4) + " to " + std::to_string(w / 4 * 4 + 3));
    }
}

void run_block(block_state& block, const function& kernel, unsigned threads, std::minstd_rand& random) {
    block.shared.begin(kernel.shared_bytes + block.how.shared_bytes);
    block.pending = {};
    block.pending.threads.resize(threads);
    if (block.code.version() >= 90) block.pending.writers.resize(block.shared.size() / 4 + 1);
    std::uint64_t changes = 0;
    int idle_turns = 0;
    std::deque<warp> warps;
    for (unsigned t = 0; t < threads; t += lanes)
        warps.emplace_back(block, kernel, static_cast<int>(t), static_cast<int>(std::min(threads - t, 32u)));
    std::vector<std::size_t> order(warps.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (;;) {
        bool is_over = true, any = false, all = true;
        if (block.how.seed != 0) std::shuffle(order.begin(), order.end(), random);
        for (const std::size_t w : order) {
            warps[w].advance();
            is_over = is_over && warps[w].is_over();
        }
        if (is_over) return check_ends(block, warps);
        if (const auto late = std::find_if(warps.begin(), warps.end(), [](const warp& w) { return w.waits(); });
            late != warps.end()) {
            idle_turns = block.pending.changes == std::exchange(changes, block.pending.changes) ? idle_turns + 1 : 0;
            if (idle_turns > most_idle_turns) late->fail(late->last_wait(), "it waits for a phase that does not end");
            continue;
        }
        const instruction* at = nullptr;
        for (warp& w : warps) {
            const instruction* const mine = w.barrier();
            if (mine != nullptr && at != nullptr && mine != at) w.fail(*mine, "threads that wait at two barriers");
            if (mine != nullptr) at = mine;
            w.vote(any, all);
        }
        for (warp& w : warps) w.tell(any, all);
        knowledge known;
        for (warp& w : warps) w.pass_barrier(), learn(known, w.known());
        for (warp& w : warps) w.known() = known;
        block.shared.pass_barrier();
    }
}
}  // namespace

void run(module& m, const function& kernel, const launch& how, const reach& may_touch) {
    const unsigned threads = how.block.x * how.block.y * how.block.z;
    if (kernel.threads_at_most != 0 && threads > static_cast<unsigned>(kernel.threads_at_most))
        throw failure("more threads than the kernel's launch bounds allow: " + kernel.name);
    std::minstd_rand random(how.seed);
    static thread_local shared_memory shared;  // of one block after the other
    block_state block{m, how, may_touch, shared};
    const std::uint64_t blocks = std::uint64_t{how.grid.x} * how.grid.y * how.grid.z;
    for (std::uint64_t n = 0; n < blocks; ++n) {
        const std::uint64_t at = how.seed % 2 == 0 ? n : blocks - 1 - n;
        block.at = {static_cast<unsigned>(at % how.grid.x), static_cast<unsigned>(at / how.grid.x % how.grid.y),
                    static_cast<unsigned>(at / how.grid.x / how.grid.y)};
        run_block(block, kernel, threads, random);
    }
}

}  // namespace halftone::ptx
