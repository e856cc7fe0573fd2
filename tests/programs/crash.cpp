// SPDX-License-Identifier: MIT
/// \file
/// Saves and loads checkpoints and weights for crash.sh, which kills it and lets its system calls fail.
///
///     crash save FOLDER STEP SEED       saves a model of this seed as checkpoint-STEP, and keeps two
///     crash load FOLDER                 prints "STEP SEED" of the newest checkpoint; 1 if one is incomplete, or is a mixture
///     crash save_weights FOLDER SEED    the weights alone, in three files and an index
///     crash load_weights FOLDER         prints "SEED"
#include <cstdio>
#include <string>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/io/checkpoint.hpp>
#include <halftone/policy.hpp>

namespace ht = halftone;

namespace {

/// Two parameters, all of whose values are determined by the seed.
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

}  // namespace

int main(int argc, char** argv) try {
    const std::string what = argc > 2 ? argv[1] : "", folder = argc > 2 ? argv[2] : "";
    if (what == "save" && argc == 5) {
        model m(std::stoull(argv[4]));
        seed_part seed{{std::stoull(argv[4])}};
        ht::save_checkpoint(folder, {.step = std::stoll(argv[3]), .save_total_limit = 2}, m, seed);
    } else if (what == "save_weights" && argc == 4) {
        ht::save_weights(model(std::stoull(argv[3])), folder, {.max_shard_bytes = 4000});
    } else if (what == "load" && argc == 3) {
        return load(folder);
    } else if (what == "load_weights" && argc == 3) {
        return load_weights(folder);
    } else {
        std::fprintf(stderr, "crash: see its source for the arguments\n");
        return 2;
    }
    return 0;
} catch (const ht::error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 3;
}
