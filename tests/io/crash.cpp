// SPDX-License-Identifier: MIT
/// \file
/// Saves and loads checkpoints and weights for tests/programs/crash.sh, which kills it and lets its system calls fail. The
/// environment variable HALFTONE_CRASH says what:
///
///     save FOLDER STEP SEED       saves a model of this seed as checkpoint-STEP, and keeps two
///     save_beside FOLDER STEP SEED    the same beside the training, which changes all parameters meanwhile
///     save_ranks FOLDER STEP SEED     the same by two ranks together
///     load FOLDER                 prints "STEP SEED" of the newest checkpoint; 1 if one is incomplete, or is a mixture
///     save_weights FOLDER SEED    the weights alone, in three files and an index
///     load_weights FOLDER         prints "SEED"
///
/// With HALFTONE_CRASH_STRACE, arguments of strace, save_beside is traced by it from the save on: strace counts the calls of each thread,
/// and those of the program's start would come before the saver's.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>

#if defined(__linux__)
#include <sys/prctl.h>
#include <unistd.h>
#endif

#include <doctest/doctest.h>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/io/checkpoint.hpp>
#include <halftone/policy.hpp>
#include <halftone/ranks/checkpoint.hpp>
#include <halftone/ranks/threads.hpp>

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

    /// Zeros, once nobody reads the parameters.
    void overwrite() {
        store.await_readers();
        for (const ht::store::group& g : store.groups()) std::memset(g.master.data(), 0, g.master.bytes());
    }

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

/// Begins strace of this process, as HALFTONE_CRASH_STRACE says. The shell waits for it, so that this process makes no calls that count.
void begin_trace() {
#if defined(__linux__)
    const char* const how = std::getenv("HALFTONE_CRASH_STRACE");
    if (how == nullptr) return;
    ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    const std::string self = std::to_string(::getpid());
    const std::string command = "strace -qq -f -p " + self + " " + how + " </dev/null >/dev/null 2>&1 & " +
                                "i=0; while ! grep -q 'TracerPid:.*[1-9]' /proc/" + self +
                                "/status; do i=$((i + 1)); [ $i -lt 1000 ] || exit 1; sleep 0.01; done; sleep 0.02";
    if (std::system(command.c_str()) != 0) std::_Exit(2);
#endif
}

/// Every parameter is written to, as a step does, while a thread saves what they were.
void save_beside(const std::string& folder, const ht::checkpoint_options& options, std::uint64_t seed) {
    model m(seed);
    seed_part part{{seed}};
    begin_trace();
    ht::checkpoint_saver saver(folder);
    saver.save(options, m, part);
    part.now.seed = 0;
    m.overwrite();
    saver.wait();
}

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
    if (what == "save" || what == "save_beside" || what == "save_ranks") in >> step;
    in >> seed;
    const ht::checkpoint_options options{.step = step, .save_total_limit = 2};
    if (what == "save_beside") {
        save_beside(folder, options, seed);
        return 0;
    }
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
