// SPDX-License-Identifier: MIT
/// \file
/// Saves and loads checkpoints and weights for tests/programs/crash.sh, which kills it and lets its system calls fail. The
/// environment variable HALFTONE_CRASH says what:
///
///     save FOLDER STEP SEED       saves a model of this seed as checkpoint-STEP, and keeps two
///     save_ranks FOLDER STEP SEED     the same by two ranks together
///     load FOLDER                 prints "STEP SEED" of the newest checkpoint; 1 if one is incomplete, or is a mixture
///     save_weights FOLDER SEED    the weights alone, in three files and an index
///     load_weights FOLDER         prints "SEED"
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

#include <doctest/doctest.h>

#include <halftone/dist/checkpoint.hpp>
#include <halftone/dist/threads.hpp>
#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/io/checkpoint.hpp>
#include <halftone/policy.hpp>

namespace io_crash_tests {

namespace ht = halftone;

/// Parameters all of whose values are determined by the seed.
struct model {
    using policy = ht::amp_bf16;
    ht::cpu device{{.threads = 1}};
    ht::store store{device.memory()};

    explicit model(std::uint64_t seed) {
        store.add<ht::at<policy, "up">, ht::op::linear>("weight", ht::shape<2>{40, 30}, {.deviation = 0.5f});
        store.add<ht::at<policy, "down">, ht::op::linear>("weight", ht::shape<2>{30, 40}, {.deviation = 0.5f});
        store.add<ht::at<policy, "norm">, ht::op::layer_norm>("weight", ht::shape<1>{700}, {.deviation = 0.5f});
        store.commit(seed);
    }
    ht::store& parameters() { return store; }
    const ht::store& parameters() const { return store; }
    static auto visit(auto&&, auto&& f) { return f(); }

    bool operator==(const model& other) const {
        for (std::size_t g = 0; g < store.groups().size(); ++g) {
            const ht::buffer &a = store.groups()[g].master, &b = other.store.groups()[g].master;
            if (std::memcmp(a.data(), b.data(), a.bytes()) != 0) return false;
        }
        return true;
    }
};

/// The seed, as a part of the checkpoint.
struct seed_state {
    std::uint64_t seed = 0;
    static void visit_fields(auto& self, auto&& f) { f("seed", self.seed); }
};
struct seed_part {
    seed_state now;
    seed_state state() const { return now; }
    void load(const seed_state& s) { now = s; }
};

int load(const std::string& folder) {
    model m(0);
    seed_part seed;
    bool is_clean = true;
    const auto found = ht::load_newest_checkpoint(folder, {.on_skipped = [&](const std::string& line) {
                                                       is_clean = false;
                                                       std::fprintf(stderr, "%s\n", line.c_str());
                                                   }}, m, seed);
    if (!found || !is_clean || !(m == model(seed.now.seed))) return 1;
    std::printf("%lld %llu\n", static_cast<long long>(found->step), static_cast<unsigned long long>(seed.now.seed));
    return 0;
}

int load_weights(const std::string& folder) {
    model m(0);
    ht::load_weights(m, folder);
    for (std::uint64_t seed = 1; seed < 10; ++seed) {
        if (!(m == model(seed))) continue;
        std::printf("%llu\n", static_cast<unsigned long long>(seed));
        return 0;
    }
    return 1;
}

int run(const std::string& command) try {
    std::istringstream in(command);
    std::string what, folder;
    in >> what >> folder;
    if (what == "load") return load(folder);
    if (what == "load_weights") return load_weights(folder);
    std::int64_t step = 0;
    std::uint64_t seed = 0;
    if (what == "save" || what == "save_ranks") in >> step;
    in >> seed;
    const ht::checkpoint_options options{.step = step, .save_total_limit = 2};
    if (what == "save_ranks") {
        ht::run_ranks(2, [&](ht::communicator& comm) {
            model mine(seed);
            seed_part part{{seed}};
            ht::save_checkpoint(comm, folder, options, mine, part);
        });
        return 0;
    }
    model m(seed);
    if (what == "save") {
        seed_part part{{seed}};
        ht::save_checkpoint(folder, options, m, part);
    } else if (what == "save_weights") {
        ht::save_weights(m, folder, {.max_shard_bytes = 4000});
    } else {
        return 2;
    }
    return 0;
} catch (const ht::error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 3;
}

TEST_CASE("crash: what HALFTONE_CRASH says" * doctest::skip()) {
    const char* const command = std::getenv("HALFTONE_CRASH");
    if (command == nullptr) return;
    const int code = run(command);
    std::fflush(stdout);
    std::_Exit(code);  // before doctest's summary
}

}  // namespace io_crash_tests
