// SPDX-License-Identifier: MIT
/// \file
/// PyTorch as a peer: a Python of its own that bench/peers/torch_cpu.py turns into a contender. It is asked for one
/// piece of work after the other in lines of JSON, and waits without work between them, so that rounds may alternate.
///
///     bench::torch_peer torch("python3", 2);
///     contenders.push_back(torch.contender("torch", {{"op", "matmul"}, {"dtype", "bfloat16"}, {"m", 256}, ...}));
#pragma once

#include <csignal>
#include <cstdio>
#include <memory>
#include <stdexcept>

#include <support/protocol.hpp>
#include <sys/wait.h>
#include <unistd.h>

namespace bench {

class torch_peer {
  public:
    /// Starts it. Throws std::runtime_error where this Python has no PyTorch.
    torch_peer(const std::string& python, int threads) {
        int to[2], from[2];
        if (pipe(to) != 0 || pipe(from) != 0) throw std::runtime_error("torch: no pipe");
        child_ = fork();
        if (child_ < 0) throw std::runtime_error("torch: no process");
        if (child_ == 0) {
            dup2(to[0], 0);
            dup2(from[1], 1);
            for (int end : {to[0], to[1], from[0], from[1]}) close(end);
            const std::string count = std::to_string(threads);
            execlp(python.c_str(), python.c_str(), HALFTONE_BENCH_FOLDER "/peers/torch_cpu.py", count.c_str(), nullptr);
            _exit(127);
        }
        close(to[0]);
        close(from[1]);
        std::signal(SIGPIPE, SIG_IGN);
        out_ = fdopen(to[1], "w");
        in_ = fdopen(from[0], "r");
        version_ = ask({{"do", "version"}}).at("version").get<std::string>();
    }
    torch_peer(const torch_peer&) = delete;
    torch_peer& operator=(const torch_peer&) = delete;
    ~torch_peer() {
        if (out_ != nullptr) std::fclose(out_);
        if (in_ != nullptr) std::fclose(in_);
        if (child_ > 0) waitpid(child_, nullptr, 0);
    }

    const std::string& version() const { return version_; }

    /// A piece of work, by the names that torch_cpu.py knows. It is dropped with the next one that is prepared unless
    /// `keep` is given in it.
    struct contender contender(std::string engine, json work) {
        work["do"] = "prepare";
        const int id = ask(work).at("id").get<int>();
        return {std::move(engine), [this, id](int times) {
                    return ask({{"do", "run"}, {"id", id}, {"times", times}}).at("seconds").get<double>();
                }};
    }
    /// Forgets all that was prepared.
    void clear() { ask({{"do", "clear"}}); }

    /// A question and its answer. Throws std::runtime_error with what Python said.
    json ask(const json& question) {
        if (std::fputs((question.dump() + "\n").c_str(), out_) < 0 || std::fflush(out_) != 0)
            throw std::runtime_error("torch: it has gone");
        std::string line;
        for (int c; (c = std::fgetc(in_)) != EOF && c != '\n';) line.push_back(static_cast<char>(c));
        if (line.empty()) throw std::runtime_error("torch: no answer; is PyTorch there?");
        json answer = json::parse(line);
        if (answer.contains("error")) throw std::runtime_error("torch: " + answer["error"].get<std::string>());
        return answer;
    }

  private:
    pid_t child_ = -1;
    std::FILE *out_ = nullptr, *in_ = nullptr;
    std::string version_;
};

/// PyTorch where --torch names one.
inline std::unique_ptr<torch_peer> torch_if_asked(const options& o, report& to) {
    if (o.torch.empty()) return nullptr;
    auto peer = std::make_unique<torch_peer>(o.torch, o.threads);
    to.note("torch", peer->version());
    return peer;
}

}  // namespace bench
