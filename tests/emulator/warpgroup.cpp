// SPDX-License-Identifier: MIT
// Products of warpgroups, and their registers.
#include <emulator/asynchronous.hpp>
#include <emulator/machine_state.hpp>
#include <emulator/matrix_sums.hpp>

namespace halftone::emulator {

// ---- products of warpgroups

template <class Operands, class Work>
void machine_state::of_warpgroup(thread_state& t, site_id id, Operands& mine, const Work& work) {
    const std::size_t group = static_cast<std::size_t>(t.index / 128);
    if (group >= t.block->asynchronous.warpgroups.size()) refuse(t, id, " is in no warpgroup of 128 threads");
    warpgroup_state& g = t.block->asynchronous.warpgroups[group];
    if (g.arrived == 0) g.at = id;
    if (g.at != id) {
        fail(*t.block, "warpgroup ", group, " parts: thread ", t.index, " is in ", name(id), ", others in ",
             name(g.at));
    }
    g.operands[t.index % 128] = &mine;
    if (++g.arrived < 128) return park(t, id);
    g.arrived = 0;
    work([&](int thread) -> Operands& { return *static_cast<Operands*>(g.operands[thread]); });
    for (int i = t.index / 128 * 128; i < t.index / 128 * 128 + 128; ++i) {
        if (i != t.index) make_ready(*t.block->threads[static_cast<std::size_t>(i)]);
    }
    maybe_preempt(t);
}

void thread_access::wgmma_fence(location at) const {
    char nothing = 0;
    machine_->together(*thread_, machine_->intern(operation::wgmma_fence, at), nothing, [this](const auto&) {
        thread_->block->asynchronous.products[static_cast<std::size_t>(thread_->index / 32)].is_fenced = true;
    });
}
void thread_access::wgmma_commit(location at) const {
    char nothing = 0;
    machine_->together(*thread_, machine_->intern(operation::wgmma_commit, at), nothing, [this](const auto&) {
        ++thread_->block->asynchronous.products[static_cast<std::size_t>(thread_->index / 32)].groups;
    });
}

/// All four warps may read the whole operand.
void machine_state::read_operand(block_state& b, int first_thread, const tile_operand& o, int outer, site_id id) {
    const auto fail_here = [&](const auto&... how) {
        fail(b, "warpgroup ", first_thread / 128, " (", name(id), ")", how...);
    };
    if (o.offset % 32 != 0 || o.offset % 1024 > (o.is_outer ? 0 : 96))
        fail_here(" multiplies from ", o.offset, " on, which is no multiple of 1024 and some steps of the depth");
    each_chunk(o, outer, [&](word chunk) {
        if (chunk + 16 > b.shared.size()) fail_here(" reads beyond the block's ", b.shared.size());
    });
    if (option.check == checking::values_only) return;
    auto& reads = b.asynchronous.reads;
    if (reads.empty()) reads.resize((b.shared.size() + 15) / 16 * b.warps.size());
    access known{};  // the copy that is known to all threads
    each_chunk(o, outer, [&](word chunk) {
        b.history.each(chunk, 16, [&](word i, const byte_history& h) {
            const access& write = h.write;
            if (write.thread == known.thread && write.warp_interval == known.warp_interval && known.interval != 0)
                return;
            if (write.interval == 0) fail_here(" reads shared byte ", i, ", which no thread has written");
            if (write.thread < first_copier)
                fail_here(" reads shared byte ", i, ", written by ", name(write),
                          ": no fence orders products after stores");
            for (int t = first_thread; t < first_thread + 128; ++t) {
                if (b.threads[static_cast<std::size_t>(t)]->clock.knows(write.thread, write.warp_interval)) continue;
                fail_here(" reads shared byte ", i, ", which ", name(write),
                          " writes: its mbarrier has not been waited for by thread ", t);
            }
            known = write;
        });
        for (std::size_t w = static_cast<std::size_t>(first_thread / 32), last = w + 4; w < last; ++w)
            reads[chunk / 16 * b.warps.size() + w] = {b.asynchronous.products[w].groups + 1, id};
    });
}

void thread_access::wgmma(vec<float, 4>* sums, int blocks, const matrix_unit& unit, const tile_operand& a,
                          const tile_operand& b, bool keep, location at) const {
    wgmma(sums, blocks, unit, a, nullptr, b, keep, machine_->intern(operation::wgmma, at));
}
void thread_access::wgmma(vec<float, 4>* sums, int blocks, const matrix_unit& unit, const vec<word, 4>& a,
                          const tile_operand& b, bool keep, location at) const {
    wgmma(sums, blocks, unit, {}, &a, b, keep, machine_->intern(operation::wgmma, at));
}
void thread_access::wgmma(vec<float, 4>* sums, int blocks, const matrix_unit& unit, const tile_operand& a,
                          const vec<word, 4>* a_words, const tile_operand& b, bool keep, site_id id) const {
    struct operands {
        vec<float, 4>* sums;
        tile_operand a, b;
        const vec<word, 4>* a_words;
        bool keep;
    } mine{sums, a, b, a_words, keep};
    if (machine_->option.architecture != 90)
        machine_->refuse(*thread_, id, detail::sentence(": an sm_", machine_->option.architecture, " has no wgmma"));
    machine_->of_warpgroup(*thread_, id, mine, [&](const auto& of) {
        block_state& block = *thread_->block;
        const int first_thread = thread_->index / 128 * 128;
        for (int i = 0; i < 128; ++i) {
            if (of(i).a == of(0).a && of(i).b == of(0).b && of(i).keep == of(0).keep) continue;
            machine_->fail(block, "warpgroup ", first_thread / 128, " parts: thread ", first_thread + i,
                           " multiplies something else in ", machine_->name(id));
        }
        if (a_words == nullptr) machine_->read_operand(block, first_thread, a, 64, id);
        machine_->read_operand(block, first_thread, b, 8 * blocks, id);
        ++machine_->count.warpgroup_mmas;
        for (int warp = first_thread / 32; warp < first_thread / 32 + 4; ++warp) {
            products_of_warp& p = block.asynchronous.products[static_cast<std::size_t>(warp)];
            const auto sums_of = [&](int lane) { return of(32 * (warp % 4) + lane).sums; };
            if (!p.is_fenced)
                machine_->fail(block, "warp ", warp, " (", machine_->name(id),
                               ") multiplies with no wgmma_fence before");
            std::shared_ptr<accumulator> added_to;
            for (const warpgroup_product& earlier : p.under_way) {
                if (earlier.sums->of[0] == sums_of(0) && !earlier.sums->is_lost) added_to = earlier.sums;
            }
            if (added_to != nullptr) {
                machine_->expect_untouched(block, warp, *added_to, id);
            } else {
                added_to = std::make_shared<accumulator>();
                added_to->blocks = blocks;
                added_to->values.resize(static_cast<std::size_t>(16 * 8 * blocks));
                for (int lane = 0; lane < 32; ++lane) {
                    vec<float, 4>* const own = added_to->of[lane] = sums_of(lane);
                    for (int j = 0; j < blocks; ++j) {
                        for (int i = 0; i < 4; ++i) {
                            const int row = lane / 4 + 8 * (i / 2), column = 8 * j + lane % 4 * 2 + i % 2;
                            added_to->values[static_cast<std::size_t>(8 * blocks * row + column)] = own[j][i];
                            own[j][i] = bit_cast<float>(accumulator::untouched);
                        }
                    }
                }
            }
            std::shared_ptr<register_operand> in_registers;
            if (a_words != nullptr) {
                in_registers = std::make_shared<register_operand>();
                for (int lane = 0; lane < 32; ++lane) {
                    in_registers->of[lane] = of(32 * (warp % 4) + lane).a_words;
                    in_registers->held[lane] = *in_registers->of[lane];
                }
            }
            p.under_way.push_back({a, b, std::move(in_registers), unit, keep, p.groups, id, std::move(added_to)});
        }
    });
}

void machine_state::expect_untouched(const block_state& b, int warp, const accumulator& sums, site_id id) const {
    for (int lane = 0; lane < 32; ++lane) {
        for (int j = 0; j < sums.blocks; ++j) {
            for (int i = 0; i < 4; ++i) {
                if (bit_cast<word>(sums.of[lane][j][i]) == accumulator::untouched) continue;
                fail(b, "thread ", 32 * warp + lane,
                     " changed sums while a product was under way that adds to them: ", name(id));
            }
        }
    }
}

void thread_access::wgmma_wait(int allowed, location at) const {
    const site_id id = machine_->intern(operation::wgmma_wait, at);
    const bool weakened = machine_->harmed(damage::wait_weakened, id);
    char nothing = 0;
    machine_->together(*thread_, id, nothing, [&](const auto&) {
        block_state& b = *thread_->block;
        const int warp = thread_->index / 32;
        products_of_warp& p = b.asynchronous.products[static_cast<std::size_t>(warp)];
        if (allowed == 0) p.is_fenced = false;
        const auto done_if = [&](int n) {
            return std::max(p.done, p.groups - std::min(p.groups, static_cast<word>(n)));
        };
        const word believed = done_if(allowed);
        p.done = done_if(allowed + (weakened ? 1 : 0));
        auto& all = p.under_way;
        const auto is_used_from = [&](const accumulator* sums, word group) {
            return std::any_of(all.begin(), all.end(),
                               [&](const warpgroup_product& of) { return of.sums.get() == sums && of.group >= group; });
        };
        for (const warpgroup_product& each : all) {
            if (each.group < p.done) machine_->multiply(b, warp, each);
        }
        for (const warpgroup_product& each : all) {
            accumulator& sums = *each.sums;
            if (sums.is_lost || is_used_from(&sums, believed)) continue;
            sums.is_lost = true;  // these registers are not written from now on
            if (is_used_from(&sums, p.done)) continue;
            machine_->expect_untouched(b, warp, sums, each.at);
            for (int lane = 0; lane < 32; ++lane) {
                for (int j = 0; j < sums.blocks; ++j) {
                    for (int i = 0; i < 4; ++i) {
                        const int row = lane / 4 + 8 * (i / 2), column = 8 * j + lane % 4 * 2 + i % 2;
                        sums.of[lane][j][i] = sums.values[static_cast<std::size_t>(8 * sums.blocks * row + column)];
                    }
                }
            }
        }
        std::erase_if(all, [&](const warpgroup_product& each) { return each.group < p.done; });
        if (machine_->option.check == checking::values_only) return;
        for (int i = 32 * warp; i < 32 * warp + 32; ++i)
            b.threads[static_cast<std::size_t>(i)]->clock.learn(unit_of(warp), p.done);
    });
}

/// Computes the warp's 16 rows from the current contents of the operands.
void machine_state::multiply(const block_state& block, int warp, const warpgroup_product& p) const {
    constexpr int depth = 16, most = 256;
    const int columns = 8 * p.sums->blocks;
    float a[16][depth], b[depth][most];
    const auto read = [&](const tile_operand& o, const matrix_unit::operand& as, int outer, int k, float* two) {
        const int byte = o.is_outer ? outer / 64 * 8192 + 128 * k + outer % 64 * 2 : 128 * outer + 2 * k;
        word packed;
        std::memcpy(&packed, &block.shared[simt::swizzled(o.offset + static_cast<word>(byte), simt::swizzle::b128)], 4);
        as.unpack(packed, two);
    };
    float two[2];
    if (p.a_words != nullptr) {
        for (int lane = 0; lane < 32; ++lane) {
            const vec<word, 4>&words = p.a_words->held[lane], &now = *p.a_words->of[lane];
            for (int i = 0; i < 4; ++i) {
                if (now[i] != words[i]) {
                    fail(block, "thread ", 32 * warp + lane, " changed an operand while a product was under way that reads it: ",
                         name(p.at));
                }
                p.unit.a.unpack(words[i], &a[lane / 4 + 8 * (i % 2)][lane % 4 * 2 + 8 * (i / 2)]);
            }
        }
    }
    for (int row = 0; p.a_words == nullptr && row < 16; row += p.a.is_outer ? 2 : 1) {
        for (int k = 0; k < depth; k += p.a.is_outer ? 1 : 2) {
            read(p.a, p.unit.a, warp % 4 * 16 + row, k, two);
            a[row][k] = two[0];
            (p.a.is_outer ? a[row + 1][k] : a[row][k + 1]) = two[1];
        }
    }
    for (int n = 0; n < columns; n += p.b.is_outer ? 2 : 1) {
        for (int k = 0; k < depth; k += p.b.is_outer ? 1 : 2) {
            read(p.b, p.unit.b, n, k, two);
            b[k][n] = two[0];
            (p.b.is_outer ? b[k][n + 1] : b[k + 1][n]) = two[1];
        }
    }
    std::vector<float>& sums = p.sums->values;
    if (!p.keep) std::fill(sums.begin(), sums.end(), 0.0f);
    if (option.mma == accumulation::nearest) {
        using vector = float __attribute__((vector_size(16)));
        for (int row = 0; row < 16; ++row) {
            for (int n = 0; n < columns; n += 8) {
                vector sum[2], right[2];
                std::memcpy(sum, &sums[static_cast<std::size_t>(columns * row + n)], sizeof sum);
                for (int k = 0; k < depth; ++k) {
                    const float x = a[row][k];
                    const vector left{x, x, x, x};
                    std::memcpy(right, &b[k][n], sizeof right);
                    sum[0] += left * right[0], sum[1] += left * right[1];
                }
                std::memcpy(&sums[static_cast<std::size_t>(columns * row + n)], sum, sizeof sum);
            }
        }
        return;
    }
    const sum_format format = format_of(p.unit, option.architecture);
    multiplied x[16][depth], y[most][depth];
    for (int k = 0; k < depth; ++k) {
        for (int row = 0; row < 16; ++row) x[row][k] = {a[row][k], exponent_of(a[row][k], p.unit.a.least_exponent)};
        for (int n = 0; n < columns; ++n) y[n][k] = {b[k][n], exponent_of(b[k][n], p.unit.b.least_exponent)};
    }
    for (int row = 0; row < 16; ++row) {
        for (int n = 0; n < columns; ++n) {
            float& sum = sums[static_cast<std::size_t>(columns * row + n)];
            for (int k = 0; k < depth; k += format.products)
                sum = add_truncated(sum, &x[row][k], &y[n][k], format.products, format);
        }
    }
}

// ---- registers

void thread_access::registers(int n, operation what, location at) const {
    const site_id id = machine_->intern(what, at);
    block_state& b = *thread_->block;
    asynchronous_state& all = b.asynchronous;
    machine_->of_warpgroup(*thread_, id, n, [&](const auto& of) {
        warpgroup_state& g = all.warpgroups[static_cast<std::size_t>(thread_->index / 128)];
        for (int i = 0; i < 128; ++i) {
            if (of(i) != n) machine_->refuse(*thread_, id, ": its warpgroup parts");
        }
        const bool is_wrong_way = what == operation::fewer_registers ? n > g.registers : n < g.registers;
        if (n % 8 != 0 || n < 24 || n > 256 || is_wrong_way) {
            machine_->refuse(*thread_, id,
                             detail::sentence(": ", n, " registers of a thread that has ", g.registers,
                                              ": no multiple of 8, outside 24 to 256 or the wrong way"));
        }
        g.wanted = n;
        if (what == operation::more_registers) return;
        g.registers = n;
        for (thread_state* t : all.wanting_registers) machine_->make_ready(*t);
        all.wanting_registers.clear();
    });
    warpgroup_state& g = all.warpgroups[static_cast<std::size_t>(thread_->index / 128)];
    while (g.registers < n) {
        int left = machine_->launch_registers() * machine_->shape.threads;
        for (const warpgroup_state& other : all.warpgroups) left -= 128 * (&other == &g ? n : other.registers);
        if (left >= 0) {
            g.registers = n;
        } else {
            all.wanting_registers.push_back(thread_);
            machine_->park(*thread_, id);
        }
    }
}

}  // namespace halftone::emulator
