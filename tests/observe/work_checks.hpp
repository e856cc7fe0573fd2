// SPDX-License-Identifier: MIT
/// \file
/// What a watched tape tells of the work of its operations, and models to ask it of.
#pragma once

#include <map>
#include <string>

#include <halftone/amp.hpp>
#include <halftone/observe/watch/watched_tape.hpp>

namespace work_checks {

namespace ht = halftone;

/// What a tape tells of each operation, "forward linear", added up.
struct collector final : ht::range_listener {
    std::map<std::string, ht::operation_work> of;
    std::string running;
    void begin(const char* operation, ht::pass p) override { running = std::string(name(p)) + " " + operation; }
    void end() override {}
    bool wants_work() const override { return true; }
    void work(const ht::operation_work& w) override {
        ht::operation_work& sum = of[running];
        sum.flops += w.flops, sum.bytes += w.bytes, sum.products += w.products, sum.in = w.in;
    }
    double flops(const std::string& key) { return of.count(key) == 0 ? -1 : of[key].flops; }
    double bytes(const std::string& key) { return of.count(key) == 0 ? -1 : of[key].bytes; }
};

template <int Rank>
ht::host_tensor<float, Rank> numbers(const ht::shape<Rank>& s) {
    ht::host_tensor<float, Rank> t(s);
    for (ht::extent i = 0; i < s.size(); ++i) t.view().data()[i] = 0.01f * static_cast<float>(i % 17) - 0.05f;
    return t;
}

struct norms : ht::nn::model {
    using policy = ht::full_fp32;
    ht::nn::layer_norm<ht::at<policy, "layer">> layer;
    ht::nn::rms_norm<ht::at<policy, "rms">> rms;
    explicit norms(ht::cpu& device) : model{device}, layer{parameters(), 6}, rms{parameters(), 6} { commit(*this); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.layer, self.rms); }
};

struct tape_of_work {
    ht::cpu device{{.threads = 1}};
    collector told;
    ht::tape<ht::cpu, ht::watched_tape> tape{device, ht::watched};
    tape_of_work() { tape.listen(&told); }

    template <class Run, int Rank>
    void run(const Run& operation, const ht::host_tensor<float, Rank>& input) {
        const auto in = tape.leaf(input.view());
        tape.backward(ht::sum(tape, operation(tape, in)));
    }
};

struct layers : ht::nn::model {
    using policy = ht::amp_bf16;
    ht::nn::embedding<ht::at<policy, "embed">> embed;
    ht::nn::linear<ht::at<policy, "in">> in;
    ht::nn::mlp<ht::at<policy, "mlp">> mlp;
    ht::nn::linear<ht::at<policy, "head">> head;
    explicit layers(ht::cpu& device)
        : model{device}, embed{parameters(), 11, 6, 8}, in{parameters(), 8, 8}, mlp{parameters(), 8, 32}, head{parameters(), 8, 7} {
        commit(*this);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.embed, self.in, self.mlp, self.head); }
};

}  // namespace work_checks
