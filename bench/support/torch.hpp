// SPDX-License-Identifier: MIT
/// \file
/// PyTorch as a peer: a Python process that runs bench/peers/torch_cpu.py. It gets one piece of work after the other in
/// lines of JSON, and sleeps between them, so that rounds can alternate between contenders.
///
///     bench::torch_peer torch("python3", 2);
///     contenders.push_back(torch.contender("torch", {{"op", "matmul"}, {"dtype", "bfloat16"}, {"m", 256}, ...}));
#pragma once

#include <memory>
#include <stdexcept>

#include <support/child.hpp>
#include <support/protocol.hpp>

namespace bench {

class torch_peer {
  public:
    /// Starts the process. Throws std::runtime_error if this Python has no PyTorch.
    torch_peer(const std::string& python, int threads)
        : child_("torch", {python, HALFTONE_BENCH_FOLDER "/peers/torch_cpu.py", std::to_string(threads)}),
          version_(ask({{"do", "version"}}).at("version").get<std::string>()) {}

    const std::string& version() const { return version_; }

    /// A contender for a piece of work, in the names that peers/torch_cpu.py knows.
    struct contender contender(std::string engine, json work) {
        work["do"] = "prepare";
        const int id = ask(work).at("id").get<int>();
        return {std::move(engine), [this, id](int times) {
                    return ask({{"do", "run"}, {"id", id}, {"times", times}}).at("seconds").get<double>();
                }};
    }
    /// Frees everything that was prepared.
    void clear() { ask({{"do", "clear"}}); }

    /// Sends a request and returns the answer. Throws std::runtime_error with Python's message.
    json ask(const json& question) {
        json answer = json::parse(child_.ask(question.dump()));
        if (answer.contains("error")) throw std::runtime_error("torch: " + answer["error"].get<std::string>());
        return answer;
    }

  private:
    child child_;
    std::string version_;
};

/// Starts PyTorch if --torch names one.
inline std::unique_ptr<torch_peer> torch_if_asked(const options& o, report& to) {
    if (o.torch.empty()) return nullptr;
    auto peer = std::make_unique<torch_peer>(o.torch, o.threads);
    to.note("torch", peer->version());
    return peer;
}

}  // namespace bench
