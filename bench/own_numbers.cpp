// SPDX-License-Identifier: MIT
/// \file
/// What number types that the library does not know cost on the CPU, compared with float and bfloat16 in turn: products, and
/// steps of a GPT with its loss.
///
///     bench_own_numbers --threads 1 --json own_numbers.json
///
/// Products read operands of the type and give float. Steps are of a policy with the type as operands, results, gradients and
/// residual stream (float16_e6m9), or as operands (fixed16; log8 under scales); the losses are those of models of their own
/// after 300 steps on one batch that can be learnt.
#include <halftone/amp.hpp>
#include <halftone/data/batches.hpp>

#include <support/program.hpp>
#include <support/random.hpp>

#include "../tests/support/own_numbers.hpp"

namespace {

namespace ht = halftone;
using ht::extent;

// ---- products

template <class T>
class product {
  public:
    product(ht::cpu& device, extent n)
        : device_(&device), n_(n), a_(converted(n, 1)), b_(converted(n, 2)), c_(static_cast<std::size_t>(n * n)) {}

    void operator()() {
        using policy = ht::with_output<ht::with_compute<ht::full_fp32, T>, float>;
        ht::matmul<policy>(*device_, ht::const_view<T, 2>(a_.data(), {n_, n_}), ht::const_view<T, 2>(b_.data(), {n_, n_}),
                           ht::view<float, 2>(c_.data(), {n_, n_}));
    }

  private:
    static std::vector<T> converted(extent n, std::uint64_t seed) {
        const auto values = bench::random_values<float>(n * n, seed, 1);
        std::vector<T> all;
        for (const float x : values) all.push_back(T(x));
        return all;
    }

    ht::cpu* device_;
    extent n_;
    std::vector<T> a_, b_;
    std::vector<float> c_;
};

void products(const bench::session& s, extent n) {
    const bench::case_name name{"product", std::to_string(n) + "x" + std::to_string(n) + "x" + std::to_string(n), "own numbers"};
    if (!s.report.wants(name)) return;
    product<float> fp32(s.device, n);
    product<ht::bfloat16> bf16(s.device, n);
    product<support::float16_e6m9> e6m9(s.device, n);
    product<support::fixed16> fixed(s.device, n);
    const auto times = bench::compare({bench::local("float", [&] { fp32(); }), bench::local("bfloat16", [&] { bf16(); }),
                                       bench::local("float16_e6m9", [&] { e6m9(); }), bench::local("fixed16", [&] { fixed(); })},
                                      s.o);
    for (const auto& t : times) {
        const double rate = 1 / t.times_faster;
        std::printf("%-10s %-16s %-14s %10.1f us, %.3f of float's rate\n", name.kernel.c_str(), name.shape.c_str(), t.engine.c_str(),
                    t.seconds * 1e6, rate);
        s.report.add_row({{"kernel", name.kernel}, {"shape", name.shape}, {"policy", t.engine}, {"seconds", t.seconds}, {"of_float", rate}});
    }
}

// ---- steps

constexpr ht::nn::gpt_config small{.vocabulary = 64, .context = 32, .layers = 2, .heads = 2, .width = 64};

template <class Policy>
class training {
  public:
    training(ht::cpu& device, const ht::nn::gpt_config& config, extent rows)
        : model_(device, config), optimizer_(device, model_, {.lr = 3e-3}), tape_(device), scaler_(device, {.enabled = needs_scale}) {
        tokens_ = bench::random_classes(rows * config.context, config.vocabulary, 1);
        for (std::size_t i = 0; i < tokens_.size(); ++i) targets_.push_back((tokens_[i] * 7 + 3) % static_cast<std::int32_t>(config.vocabulary));
        batch_ = {{tokens_.data(), {rows, config.context}}, {targets_.data(), {rows, config.context}}};
    }
    void operator()() {
        const auto loss = model_.loss(tape_, batch_);
        loss_ = loss.item();
        tape_.backward(scaler_.scale(loss), acc_);
        auto gradients = scaler_.unscale(acc_.take());
        optimizer_.step(gradients);
        scaler_.update();
    }
    float loss_after(int steps) {
        for (int i = 0; i < steps; ++i) (*this)();
        return loss_;
    }

  private:
    using gpt = ht::nn::gpt<Policy>;
    static constexpr bool needs_scale = ht::model_needs_scaling<gpt>;

    gpt model_;
    ht::adamw<ht::cpu, gpt> optimizer_;
    decltype(ht::tape{std::declval<ht::cpu&>()}) tape_;
    decltype(ht::accumulator{std::declval<gpt&>()}) acc_{model_};
    ht::grad_scaler<ht::cpu> scaler_;
    std::vector<std::int32_t> tokens_, targets_;
    ht::language_batch batch_;
    float loss_ = 0;
};

void steps(const bench::session& s, const ht::nn::gpt_config& config, extent rows) {
    const bench::case_name name{"step",
                                std::to_string(config.layers) + " x " + std::to_string(config.width) + ", " + std::to_string(rows) +
                                    " x " + std::to_string(config.context) + " tokens",
                                "own numbers"};
    if (!s.report.wants(name)) return;
    training<ht::full_fp32> fp32(s.device, config, rows);
    training<ht::amp_bf16> bf16(s.device, config, rows);
    training<support::amp_e6m9> e6m9(s.device, config, rows);
    training<support::fixed_operands> fixed(s.device, config, rows);
    training<support::log8_hybrid> log8(s.device, config, rows);
    const auto times = bench::compare({bench::local("full_fp32", [&] { fp32(); }), bench::local("amp_bf16", [&] { bf16(); }),
                                       bench::local("amp_e6m9", [&] { e6m9(); }), bench::local("fixed_operands", [&] { fixed(); }),
                                       bench::local("log8_hybrid", [&] { log8(); })},
                                      s.o);
    for (const auto& t : times) {
        const double rate = 1 / t.times_faster;
        std::printf("%-10s %-26s %-16s %10.1f us, %.3f of full_fp32's rate\n", name.kernel.c_str(), name.shape.c_str(),
                    t.engine.c_str(), t.seconds * 1e6, rate);
        s.report.add_row({{"kernel", name.kernel}, {"shape", name.shape}, {"policy", t.engine}, {"seconds", t.seconds}, {"of_fp32", rate}});
    }
}

template <class Policy>
void tell_loss(const bench::session& s, const char* policy, double roundoff) {
    const bench::case_name name{"loss", "2 x 64, 4 x 32 tokens, 300 steps", policy};
    if (!s.report.wants(name)) return;
    const float loss = training<Policy>(s.device, small, 4).loss_after(300);
    std::printf("%-10s %-26s %-16s %.5f\n", name.kernel.c_str(), name.shape.c_str(), policy, static_cast<double>(loss));
    s.report.add_row({{"kernel", name.kernel}, {"shape", name.shape}, {"policy", policy}, {"unit_roundoff", roundoff}, {"loss", loss}});
}
void losses(const bench::session& s) {
    tell_loss<ht::full_fp32>(s, "full_fp32", ht::unit_roundoff<float>);
    tell_loss<ht::amp_bf16>(s, "amp_bf16", ht::unit_roundoff<ht::bfloat16>);
    tell_loss<support::amp_e6m9>(s, "amp_e6m9", ht::unit_roundoff<support::float16_e6m9>);
    tell_loss<support::fixed_operands>(s, "fixed_operands", ht::unit_roundoff<support::fixed16>);
    tell_loss<support::log8_hybrid>(s, "log8_hybrid", ht::unit_roundoff<support::log8>);
}

}  // namespace

int main(int argc, char** argv) {
    bench::options o;
    CLI::App app{"Times products and steps with number types of a user's own on the CPU, compared with float and bfloat16."};
    return bench::run_program("bench_own_numbers", app, o, argc, argv, [](const bench::session& s) {
        for (const extent n : {256, 512, 1024, 2048}) products(s, n);
        steps(s, small, 4);
        steps(s, {.vocabulary = 256, .context = 128, .layers = 4, .heads = 4, .width = 256}, 4);
        losses(s);
    });
}
