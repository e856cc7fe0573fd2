// SPDX-License-Identifier: MIT
/// \file
/// What it costs to record a training step: steps whose ranges a trace records, compared with steps whose ranges nobody hears.
///
///     bench_ranges --rounds 101 --json ranges.json
///
/// A step is a forward and backward pass of a GPT on a watched tape, as trainers have, clipping and AdamW. The same objects make both
/// kinds of step; the tape listens or does not. tests/valgrind/ranges.sh counts instructions, also of programs without ranges.
#include <halftone/amp.hpp>
#include <halftone/data/batches.hpp>
#include <halftone/observe/trace/recorder.hpp>
#include <halftone/observe/watch/watched_tape.hpp>

#include <support/program.hpp>
#include <support/random.hpp>

namespace {

namespace ht = halftone;

struct size {
    const char* name;
    int layers;
    ht::extent width, heads, context, batch;
};

template <class Policy>
class training {
  public:
    training(ht::cpu& device, const size& s)
        : device_(device), model_(device, {.vocabulary = 256, .context = s.context, .layers = s.layers, .heads = s.heads, .width = s.width}) {
        tokens_ = bench::random_classes(s.batch * s.context, 256, 1), targets_ = bench::random_classes(s.batch * s.context, 256, 2);
        batch_ = {{tokens_.data(), {s.batch, s.context}}, {targets_.data(), {s.batch, s.context}}};
    }
    void step(ht::range_listener* listener) {
        tape_.listen(listener);
        const ht::scoped_range whole(listener, "step", ht::track::step);
        tape_.backward(model_.loss(tape_, batch_), acc_);
        auto gradients = acc_.take();
        ht::clip_grad_norm(device_, gradients, 1.0f);
        optimizer_.step(gradients);
    }

  private:
    using gpt = ht::nn::gpt<Policy>;
    ht::cpu& device_;
    gpt model_;
    ht::adamw<ht::cpu, gpt> optimizer_{device_, model_, {.lr = 3e-4, .weight_decay = 0.1}};
    ht::accumulator<ht::unscaled_t, ht::types<gpt>> acc_{model_, ht::unscaled};
    decltype(ht::tape{std::declval<ht::cpu&>(), ht::watched}) tape_{device_, ht::watched};
    std::vector<std::int32_t> tokens_, targets_;
    ht::language_batch batch_;
};

template <class Policy>
void measure(const bench::session& s, const size& of, const char* policy) {
    const bench::case_name name{"step, traced", of.name, policy};
    if (!s.report.wants(name)) return;
    training<Policy> run(s.device, of);
    ht::trace_recorder trace{s.device};
    const auto times = bench::compare({bench::local("nobody listens", [&] { run.step(nullptr); }),
                                       bench::local("traced", [&] { run.step(&trace); })}, s.o);
    std::printf("%-14s %-24s %-10s %10.1f us, traced %.4f times\n", name.kernel.c_str(), of.name, name.policy.c_str(), times[0].seconds * 1e6,
                times[1].times_faster);
    s.report.add_row({{"kernel", name.kernel}, {"shape", of.name}, {"policy", name.policy}, {"seconds", times[0].seconds},
                      {"seconds_traced", times[1].seconds}, {"times", times[1].times_faster}});
}

}  // namespace

int main(int argc, char** argv) {
    bench::options o;
    o.rounds = 101;
    CLI::App app{"Times training steps that a trace records, compared with steps that nobody hears."};
    return bench::run_program("bench_ranges", app, o, argc, argv, [](const bench::session& s) {
        for (const size& of : {size{"4 x 256, 4 x 128 tokens", 4, 256, 4, 128, 4}, size{"2 x 64, 2 x 32 tokens", 2, 64, 2, 32, 2}}) {
            measure<ht::full_fp32>(s, of, "full_fp32");
            measure<ht::amp_bf16>(s, of, "amp_bf16");
        }
    });
}
