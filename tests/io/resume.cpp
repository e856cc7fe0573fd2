// SPDX-License-Identifier: MIT
/// \file
/// A run that is saved, destroyed, built anew and loaded goes on with the bits of one that was not interrupted.
#include <doctest/doctest.h>

#include "io/resume_checks.hpp"
#include "io/run.hpp"
#include "support/temporary_folder.hpp"

namespace io_resume_tests {

namespace ht = halftone;

using keeping::resumes;
using keeping::run;

using delayed_fp8 = ht::with_scaling<ht::fp8_hybrid, ht::delayed_scaling<3>>;
using split_bf16 = ht::with_split_master<ht::amp_bf16>;

// The other policies and optimizers run with --full: these take long to compile.
TEST_CASE("checkpoint: a resumed run has the bits of an uninterrupted one, under every way to store parameters") {
    resumes<ht::amp_fp16, keeping::by_adamw>(3);
    resumes<ht::pure_bf16, keeping::by_adamw>(1);
    resumes<split_bf16, keeping::by_adamw>(2);
    resumes<delayed_fp8, keeping::by_adamw>(2);
}

TEST_CASE("checkpoint: a resumed run has the bits of an uninterrupted one, with every kind of moments") {
    resumes<ht::amp_fp16, keeping::by_adamw_8bit>(2);
    resumes<ht::amp_fp16, keeping::by_lion>(2);
    resumes<ht::amp_fp16, keeping::by_muon>(1);
    resumes<ht::amp_fp16, keeping::by_adafactor>(3);
}

TEST_CASE("checkpoint: a run whose batches come from a loader goes on in the middle of an epoch, with other workers") {
    keeping::resumes_in_an_epoch<ht::amp_fp16, keeping::by_adamw>();
    keeping::trainer_resumes_in_an_epoch<ht::amp_fp16>();
}

/// Takes no state.
struct refusing {
    static constexpr const char* checkpoint_name = "refusing";
    struct nothing {
        std::int64_t number = 0;
        static void visit_fields(auto& self, auto&& f) { f("number", self.number); }
    };
    nothing state() const { return {}; }
    void load(const nothing&) { throw ht::argument_error("not today"); }
};

TEST_CASE("checkpoint: a load that is refused at its end restores the histories of delayed scaling, too") {
    const support::temporary_folder folder;
    run<delayed_fp8, keeping::by_adamw> r(2);
    refusing last;
    for (int i = 0; i < 3; ++i) r.step(i);
    r.with_parts([&](auto&... parts) { ht::save_checkpoint(folder.path(), {.step = 3}, parts..., last); });
    for (int i = 3; i < 6; ++i) r.step(i);
    const std::string before = r.bytes();
    r.with_parts([&](auto&... parts) {
        CHECK_THROWS_AS(ht::load_checkpoint(folder.path() / "checkpoint-3", {}, parts..., last), ht::checkpoint_error);
    });
    CHECK(r.bytes() == before);
}

#if defined(HALFTONE_FULL_TESTS)
template <class Optimizer>
void under_all() {
    for (const int micro_batches : {1, 2, 3}) {
        resumes<ht::full_fp32, Optimizer>(micro_batches), resumes<ht::amp_bf16, Optimizer>(micro_batches);
        resumes<ht::amp_fp16, Optimizer>(micro_batches), resumes<ht::pure_bf16, Optimizer>(micro_batches);
        resumes<split_bf16, Optimizer>(micro_batches), resumes<delayed_fp8, Optimizer>(micro_batches);
        resumes<ht::tf32, Optimizer>(micro_batches), resumes<ht::fp8_hybrid, Optimizer>(micro_batches);
    }
}
TEST_CASE("checkpoint: every policy with every optimizer and accumulation" * doctest::skip()) {
    under_all<keeping::by_adamw>(), under_all<keeping::by_adamw_8bit>(), under_all<keeping::by_sgd>();
    under_all<keeping::by_lion>(), under_all<keeping::by_muon>(), under_all<keeping::by_adafactor>();
}
#endif

TEST_CASE("checkpoint: masters are converted to every layout; another optimizer is refused") {
    const support::temporary_folder folder;
    run<ht::amp_fp16, keeping::by_adamw> half;
    for (int i = 0; i < 5; ++i) half.step(i);
    half.save(folder.path(), 5);
    const auto path = folder.path() / "checkpoint-5";
    const ht::load_checkpoint_options converting{.policy = ht::policy_change::convert};
    // Masters in bf16: each is rounded once.
    run<ht::pure_bf16, keeping::by_adamw> narrow;
    CHECK_THROWS_AS(narrow.load(path), ht::checkpoint_error);
    narrow.load(path, converting);
    CHECK(narrow.model.up.weight.master()(3, 2) == ht::bfloat16(half.model.up.weight.master()(3, 2)));
    // And a split master, which is saved as a float.
    run<split_bf16, keeping::by_adamw> split;
    split.load(path, converting);
    CHECK(ht::to_host(split.device, split.model.up.weight.master())(3, 2) == half.model.up.weight.master()(3, 2));
    run<ht::amp_fp16, keeping::by_lion> lion;
    CHECK_THROWS_WITH_AS(lion.load(path), "checkpoint: the optimizer was adamw there, and is lion here", ht::checkpoint_error);
}

}  // namespace io_resume_tests
