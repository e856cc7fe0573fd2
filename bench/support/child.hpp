// SPDX-License-Identifier: MIT
/// \file
/// A peer that runs as a separate program: it gets a request in one line, answers in one line, and sleeps between
/// requests, so that rounds can alternate between contenders.
#pragma once

#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <support/protocol.hpp>

namespace bench {

/// The child process and the pipes to it.
class child {
  public:
    /// `name` is the program's name in error messages.
    child(std::string name, std::vector<std::string> command) : name_(std::move(name)) {
        int to[2], from[2];
        if (pipe(to) != 0 || pipe(from) != 0) throw std::runtime_error(name_ + ": no pipe");
        process_ = fork();
        if (process_ < 0) throw std::runtime_error(name_ + ": no process");
        if (process_ == 0) {
            dup2(to[0], 0);
            dup2(from[1], 1);
            for (int end : {to[0], to[1], from[0], from[1]}) close(end);
            std::vector<char*> arguments;
            for (std::string& word : command) arguments.push_back(word.data());
            arguments.push_back(nullptr);
            execvp(arguments[0], arguments.data());
            _exit(127);
        }
        close(to[0]);
        close(from[1]);
        std::signal(SIGPIPE, SIG_IGN);
        out_ = fdopen(to[1], "w");
        in_ = fdopen(from[0], "r");
    }
    child(const child&) = delete;
    child& operator=(const child&) = delete;
    ~child() {
        if (out_ != nullptr) std::fclose(out_);
        if (in_ != nullptr) std::fclose(in_);
        if (process_ > 0) waitpid(process_, nullptr, 0);
    }

    const std::string& name() const { return name_; }

    /// Sends a line and returns the answer. Throws std::runtime_error if there is none.
    std::string ask(const std::string& question) {
        if (std::fputs((question + "\n").c_str(), out_) < 0 || std::fflush(out_) != 0)
            throw std::runtime_error(name_ + ": it has gone");
        std::string line;
        for (int c; (c = std::fgetc(in_)) != EOF && c != '\n';) line.push_back(static_cast<char>(c));
        if (line.empty()) throw std::runtime_error(name_ + ": no answer; is it there?");
        return line;
    }

  private:
    std::string name_;
    pid_t process_ = -1;
    std::FILE *out_ = nullptr, *in_ = nullptr;
};

/// A program that gets the work to prepare ("key value key value ...") and then the number of runs ("run 3"), and
/// answers with the seconds that these took.
class plain_peer {
  public:
    plain_peer(const std::string& program, int threads) : child_(program, {program, std::to_string(threads)}) {}

    /// The program prepares one piece of work at a time.
    struct contender contender(std::string engine, const json& work) {
        std::string line;
        for (const auto& [key, value] : work.items()) line += key + " " + value.dump() + " ";
        child_.ask(line);
        return {std::move(engine), [this](int times) { return std::stod(child_.ask("run " + std::to_string(times))); }};
    }

  private:
    child child_;
};

}  // namespace bench
