// SPDX-License-Identifier: MIT
/// \file
/// Processes that train a small GPT together, with checkpoints, for tests/programs/mpi_training.sh, which lets one of them be killed
/// or stopped in each phase of a step.
///
///     mpirun -n 3 mpi_training FOLDER STAGE                 trains to the end, from the newest checkpoint in FOLDER if there is one.
///                                                           FOLDER.log gets a line for each step and evaluation, with the bits of
///                                                           its loss. Prints "from 4", and how often there was what: "forward 120"
///     mpirun -n 3 mpi_training FOLDER STAGE backward 20 1 KILL [500]
///                                                           rank 1 gets SIGKILL (or STOP) when operation 20 of a backward pass
///                                                           begins, or as many microseconds later
///
/// Phases are forward, backward, optimizer, evaluation and checkpoint; "backward.collective" counts the collectives that begin or
/// are waited for in one. STAGE is that of ZeRO; 0: data parallel. SLOW_ABORT has the seconds that MPI_Abort takes longer, as on a
/// busy machine.
#include <bit>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <halftone/ranks/listened.hpp>
#include <halftone/ranks/mpi.hpp>
#include <halftone/train/checkpoints_of_ranks.hpp>
#include <halftone/train/ranks.hpp>
#include <halftone/train/sharded_ranks.hpp>

#include "train/small_gpt.hpp"

namespace ht = halftone;

/// MPI's profiling interface: programs may replace its functions, and call them by this name.
extern "C" int MPI_Abort(MPI_Comm comm, int code) {
    if (const char* const seconds = std::getenv("SLOW_ABORT"))
        std::this_thread::sleep_for(std::chrono::seconds(std::atoi(seconds)));
    return PMPI_Abort(comm, code);
}

namespace {

/// What happens to this process, and how much of each phase there was.
class fate final : public ht::range_listener {
  public:
    std::string phase;  ///< empty: nothing happens
    int number = 0, signal = 0, microseconds = 0;
    std::map<std::string, int> counts;

    void begin(const char*, ht::pass) override { meet(now()); }
    void end() override {}
    void begin_scope(const char* name, ht::track t) override {
        const bool is_collective = t == ht::track::collectives;
        scopes_.push_back(is_phase(name) ? name : now());
        if (is_collective || is_phase(name)) meet(now() + (is_collective ? ".collective" : ""));
    }
    void end_scope() override { scopes_.pop_back(); }

  private:
    static bool is_phase(const char* name) {
        for (const char* const one : {"forward", "backward", "optimizer", "evaluation", "checkpoint"}) {
            if (std::strcmp(name, one) == 0) return true;
        }
        return false;
    }
    std::string now() const { return scopes_.empty() ? "between" : scopes_.back(); }
    void meet(const std::string& what) {
        if (++counts[what] != number || what != phase) return;
        if (microseconds == 0) {
            std::raise(signal);
            return;
        }
        later_ = std::jthread([this] {
            std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
            std::raise(signal);
        });
    }

    std::vector<std::string> scopes_;
    std::jthread later_;
};

struct logger final : ht::trainer_callback {
    std::ofstream log;
    void line(const char* what, std::int64_t step, double loss) {
        log << what << ' ' << step << ' ' << std::hex << std::bit_cast<std::uint64_t>(loss) << std::dec << std::endl;
    }
    void on_step(const ht::trainer_state& s) override { line("step", s.step, s.step_loss); }
    void on_evaluate(const ht::trainer_state& s, const ht::evaluation_result& r) override { line("evaluation", s.step, r.loss); }
};

void train(ht::communicator& inner, fate& listener, const std::string& folder, int stage) {
    using model_type = ht::nn::gpt<ht::amp_bf16>;
    ht::listened_communicator comm{inner, &listener};
    ht::cpu device{{.threads = 1}};
    ht::nn::gpt_config config = small::config;
    config.dropout = 0.1f;
    model_type model{device, config, 1};
    const std::string text = small::text();
    ht::language_data data{ht::token_view{text}, small::options};
    std::optional<ht::shard<ht::cpu, model_type, ht::zero>> sharded;
    if (stage > 0) sharded.emplace(device, model, comm, ht::zero(stage, {"h.*"}), ht::shard_options{.micro_batches = 2});
    ht::trainer trainer{device, model, {.per_device_train_batch_size = 2, .per_device_eval_batch_size = 16, .gradient_accumulation_steps = 2,
                                        .max_steps = 10, .learning_rate = 3e-3, .eval_steps = 5, .output_dir = folder, .save_steps = 2,
                                        .save_total_limit = 2, .resume_from_checkpoint = "newest"}};
    trainer.listen(&listener);
    logger log;
    if (comm.rank() == 0) log.log.open(folder + ".log", std::ios::app);
    trainer.add_callback(log);
    if (sharded) {
        ht::join(trainer, *sharded);
    } else {
        ht::join(trainer, comm);
    }
    ht::trainer_checkpoints checkpoints{trainer, comm};
    if (comm.rank() == 0) std::cout << "from " << (checkpoints.resumed() ? checkpoints.resumed()->step : 0) << std::endl;
    trainer.train(data);
}

}  // namespace

int main(int argc, char** argv) try {
    ht::mpi_session session{argc, argv, {.deadline = std::chrono::seconds(3)}};
    ht::mpi_communicator comm{session};
    if (argc < 3) return 2;
    fate f;
    if (argc >= 7 && std::atoi(argv[5]) == comm.rank()) {
        f.phase = argv[3], f.number = std::atoi(argv[4]);
        f.signal = std::string(argv[6]) == "KILL" ? SIGKILL : SIGSTOP;
        if (argc >= 8) f.microseconds = std::atoi(argv[7]);
    }
    train(comm, f, argv[1], std::atoi(argv[2]));
    if (comm.rank() == 0) {
        for (const auto& [what, count] : f.counts) std::cout << what << ' ' << count << '\n';
    }
    return 0;
} catch (const std::exception& e) {
    std::fprintf(stderr, "mpi_training: %s\n", e.what());
    return 1;
}
