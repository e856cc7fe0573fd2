// SPDX-License-Identifier: MIT
/// \file
/// A trainer of any optimizer is saved and resumed with the bits of a run that was not.
#include <doctest/doctest.h>

#include <halftone/train/checkpoints.hpp>

#include "support/temporary_folder.hpp"
#include "train/any_optimizer.hpp"

namespace io_any_optimizer_tests {

namespace ht = halftone;

TEST_CASE_TEMPLATE("trainer of any optimizer: a resumed run has the parameters and moments of one that was not interrupted",
                   Options, ANY_OPTIMIZER) {
    const support::temporary_folder folder;
    ht::cpu device{{.threads = 1}};
    ht::training_arguments a = any::arguments;
    a.output_dir = folder.path().string();
    a.save_steps = 4;
    std::vector<std::byte> whole;
    {
        any::run<Options> r{device, a};
        ht::trainer_checkpoints checkpoints{r.trainer};
        r.trainer.train(r.data);
        whole = r.bytes();
    }
    a.resume_from_checkpoint = (folder.path() / "checkpoint-4").string();
    any::run<Options> r{device, a};
    const auto begun = r.bytes();
    ht::trainer_checkpoints checkpoints{r.trainer};
    REQUIRE(checkpoints.resumed());
    CHECK(r.trainer.state().step == 4);
    CHECK(r.bytes() != begun);
    CHECK(r.bytes() != whole);
    r.trainer.train(r.data);
    CHECK(r.trainer.state().step == 6);
    CHECK(r.bytes() == whole);
}

TEST_CASE("trainer of any optimizer: a checkpoint of another one is refused") {
    const support::temporary_folder folder;
    ht::cpu device{{.threads = 1}};
    ht::training_arguments a = any::arguments;
    a.output_dir = folder.path().string();
    a.save_steps = 6;
    {
        any::run<ht::lion_options> r{device, a};
        ht::trainer_checkpoints checkpoints{r.trainer};
        r.trainer.train(r.data);
    }
    a.resume_from_checkpoint = (folder.path() / "checkpoint-6").string();
    any::run<own::ademamix_options> r{device, a};
    CHECK_THROWS_AS(ht::trainer_checkpoints{r.trainer}, ht::checkpoint_error);
    a.optim = "lion_8bit";
    any::run<ht::lion_options> in_8_bits{device, a};
    CHECK_THROWS_AS(ht::trainer_checkpoints{in_8_bits.trainer}, ht::checkpoint_error);
}

}  // namespace io_any_optimizer_tests
