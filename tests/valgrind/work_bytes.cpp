// SPDX-License-Identifier: MIT
/// \file
/// Operations one by one, forward and backward, for work_bytes.py: before each the caches are filled with other memory, and
/// after each callgrind writes its counts. Prints the bytes that the watched tape tells, "forward linear 1234".
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include <valgrind/callgrind.h>

#include <halftone/amp.hpp>
#include <halftone/nn/conv2d.hpp>
#include <halftone/observe/watch/watched_tape.hpp>

namespace ht = halftone;

namespace {

/// Fills the caches where an operation begins, and has it counted.
class counter final : public ht::range_listener {
  public:
    void begin(const char* operation, ht::pass p) override {
        if (depth_++ != 0) return;
        name_ = std::string(ht::name(p)) + " " + operation;
        volatile char sum = 0;
        for (std::size_t i = 0; i < other_.size(); i += 64) sum = sum + other_[i];
        CALLGRIND_ZERO_STATS;
    }
    void end() override {
        if (--depth_ != 0) return;
        CALLGRIND_DUMP_STATS_AT(name_.c_str());
    }
    bool wants_work() const override { return true; }
    void work(const ht::operation_work& w) override { bytes_[name_] += w.bytes; }
    void print() const {
        for (const auto& [name, bytes] : bytes_) std::printf("%s %.0f\n", name.c_str(), bytes);
    }

  private:
    std::vector<char> other_ = std::vector<char>(64 << 20, 1);
    std::string name_;
    int depth_ = 0;
    std::map<std::string, double> bytes_;
};

template <int Rank>
ht::host_tensor<float, Rank> numbers(const ht::shape<Rank>& s) {
    ht::host_tensor<float, Rank> t(s);
    for (ht::extent i = 0; i < s.size(); ++i) t.view().data()[i] = 0.01f * static_cast<float>(i % 17) - 0.05f;
    return t;
}

constexpr ht::extent rows = 512, width = 256, ids = 512;

struct layers : ht::nn::model {
    using policy = ht::full_fp32;
    ht::nn::embedding<ht::at<policy, "embed">> embed;
    ht::nn::layer_norm<ht::at<policy, "norm">> norm;
    ht::nn::rms_norm<ht::at<policy, "rms">> rms;
    ht::nn::mlp<ht::at<policy, "mlp">> mlp;
    ht::nn::linear<ht::at<policy, "head">> head;
    explicit layers(ht::cpu& device)
        : model{device}, embed{parameters(), ids, rows, width}, norm{parameters(), width}, rms{parameters(), width},
          mlp{parameters(), width, 2 * width}, head{parameters(), width, ids} {
        commit(*this);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.embed, self.norm, self.rms, self.mlp, self.head); }
};

}  // namespace

int main() {
    ht::cpu device{{.threads = 1}};
    layers model{device};
    ht::accumulator acc{model, ht::unscaled};
    std::vector<std::int32_t> tokens, targets;
    for (std::int32_t i = 0; i < rows; ++i) tokens.push_back(i), targets.push_back(i % ids);
    const auto a = numbers(ht::shape<3>{2, 256, 256}), b = numbers(ht::shape<3>{2, 256, 256}), qkv = numbers(ht::shape<3>{2, 256, 3 * width});
    const auto image = numbers(ht::shape<4>{2, 16, 64, 64}), kernel = numbers(ht::shape<4>{16, 16, 3, 3});
    ht::tape<ht::cpu, ht::watched_tape> tape{device, ht::watched};
    const auto step = [&] {
        const auto h = model.embed(tape, ht::const_view<std::int32_t, 2>(tokens.data(), {1, rows}));
        const auto logits = model.head(tape, model.mlp(tape, model.rms(tape, model.norm(tape, h)), h));
        tape.backward(ht::cross_entropy(tape, logits, ht::const_view<std::int32_t, 2>(targets.data(), {1, rows})), acc);
        const auto left = tape.leaf(a.view()), right = tape.leaf(b.view());
        const auto products = ht::softmax(tape, ht::map(tape, [](auto x) { return x * x; }, ht::matmul(tape, left, right)));
        tape.backward(ht::sum(tape, products));
        const auto in = tape.leaf(qkv.view());
        tape.backward(ht::sum(tape, ht::self_attention<ht::roles<float, float, float>>(tape, in, 4, {.mask = ht::attention_mask::causal})));
        const auto pictures = tape.leaf(image.view()), weight = tape.leaf(kernel.view());
        tape.backward(ht::sum(tape, ht::conv2d(tape, pictures, weight, {.padding = {1, 1}})));
        static_cast<void>(acc.take());
    };
    step();  // plans, and allocates
    counter count;
    tape.listen(&count);
    step();
    count.print();
}
