// SPDX-License-Identifier: MIT
/// \file
/// The lessons that use a device, on the emulated GPU: they print what their sources say; the host does not access device memory,
/// which would fault, and kernels do not access host memory.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <emulator/device.hpp>
#include <unistd.h>

#include <halftone/amp.hpp>
#include <halftone/autodiff/double_backward/double_backward.hpp>
#include <halftone/kernel/device.hpp>
#include <halftone/nn/sparse_embedding.hpp>
#include <halftone/observe/numerics/numerics.hpp>
#include <halftone/observe/overflow/overflow.hpp>
#include <halftone/policy/ledger.hpp>
#include <halftone/policy/table.hpp>

#include "../../../examples/with_device.hpp"

// Each lesson has its own namespace, in which its main is an ordinary function that selects no device.
#define with_device(argc, argv, ...) (static_cast<void>(argc), static_cast<void>(argv), 0)
namespace lesson_09 {
#include "../../../examples/09_fp8.cpp"
}
namespace lesson_03 {
#include "../../../examples/03_regression.cpp"
}
namespace lesson_04 {
#include "../../../examples/04_loss_scaling.cpp"
}
namespace lesson_05 {
#include "../../../examples/05_own_model.cpp"
}
namespace lesson_07 {
#include "../../../examples/07_sparse_embeddings.cpp"
}
namespace lesson_06 {
#include "../../../examples/06_gradient_penalty.cpp"
}
namespace lesson_08 {
#include "../../../examples/08_one_layer_in_fp32.cpp"
}
namespace lesson_10 {
#include "../../../examples/10_find_the_overflow.cpp"
}
#undef with_device

namespace {

namespace ht = halftone;

/// The emulated GPU as a GPU that reaches its own memory alone.
class device : public ht::emulator::device {
  public:
    explicit device(const ht::emulator::options& option = {}) : ht::emulator::device(option) {
        how().may_touch = [this](const void* p) { return reaches(p); };
    }
};

/// What is written to stdout while it lives.
class captured_output {
  public:
    captured_output() : file_(std::tmpfile(), &std::fclose) {
        REQUIRE(file_ != nullptr);
        flush();
        terminal_ = dup(STDOUT_FILENO);
        dup2(fileno(file_.get()), STDOUT_FILENO);
    }
    captured_output(const captured_output&) = delete;
    captured_output& operator=(const captured_output&) = delete;
    ~captured_output() { end(); }

    std::string end() {
        if (terminal_ < 0) return {};
        flush();
        dup2(terminal_, STDOUT_FILENO);
        close(terminal_);
        terminal_ = -1;
        std::string text(static_cast<std::size_t>(std::ftell(file_.get())), ' ');
        std::rewind(file_.get());
        text.resize(std::fread(text.data(), 1, text.size(), file_.get()));
        return text;
    }

  private:
    static void flush() {
        std::cout.flush();
        std::fflush(stdout);
    }

    std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
    int terminal_ = -1;
};

/// The text behind each "// Prints: " of a lesson's source.
std::vector<std::string> promises_of(const char* lesson) {
    std::ifstream source(std::string(HALFTONE_TEST_DATA "/../../examples/") + lesson);
    REQUIRE_MESSAGE(source.good(), lesson);
    const std::string mark = "// Prints: ";
    std::vector<std::string> promises;
    for (std::string line; std::getline(source, line);) {
        const std::size_t at = line.find_first_not_of(' ');
        if (at != std::string::npos && line.compare(at, mark.size(), mark) == 0)
            promises.push_back(line.substr(at + mark.size()));
    }
    REQUIRE(!promises.empty());
    return promises;
}

/// Runs a lesson and checks that it prints what it promises, in this order.
template <class Lesson>
void keeps_its_promises(const char* source, const Lesson& lesson) {
    device gpu{{.seed = 3, .check = ht::emulator::checking::values_only}};
    std::string output;
    {
        captured_output out;
        lesson(gpu);
        output = out.end();
    }
    std::size_t at = 0;
    for (const std::string& promise : promises_of(source)) {
        const std::size_t found = output.find(promise, at);
        CHECK_MESSAGE(found != std::string::npos, source, " promises: ", promise, "\nand prints:\n", output);
        if (found != std::string::npos) at = found + promise.size();
    }
}

TEST_CASE("the machine on which lessons run tells host memory from device memory") {
    device gpu;
    std::vector<float> host(8, 1.0f);
    const auto own = ht::to_device(gpu, ht::const_view<float, 1>(host.data(), {8}));
    const auto twice = [](auto x) { return 2 * x; };
    ht::map(gpu, twice, own, own);
    CHECK(ht::to_host(gpu, own)(7) == 2);
    CHECK_THROWS_AS(ht::map(gpu, twice, ht::view<float, 1>(host.data(), {8}), own), ht::emulator::failure);
    CHECK_THROWS_AS(ht::map(gpu, twice, own, ht::view<float, 1>(host.data(), {8})), ht::emulator::failure);
}

TEST_CASE("lesson 9 on the emulated machine") {
    keeps_its_promises("09_fp8.cpp", [](auto& device) { lesson_09::lesson(device); });
}

TEST_CASE("lesson 3 on the emulated machine") {
    keeps_its_promises("03_regression.cpp", [](auto& device) { lesson_03::lesson(device); });
}

TEST_CASE("lesson 4 on the emulated machine") {
    keeps_its_promises("04_loss_scaling.cpp", [](auto& device) { lesson_04::lesson(device); });
}

TEST_CASE("lesson 5 on the emulated machine") {
    keeps_its_promises("05_own_model.cpp", [](auto& device) { lesson_05::lesson(device); });
}

TEST_CASE("lesson 6 on the emulated machine") {
    keeps_its_promises("06_gradient_penalty.cpp", [](auto& device) { lesson_06::lesson(device); });
}

TEST_CASE("lesson 7 on the emulated machine") {
    keeps_its_promises("07_sparse_embeddings.cpp", [](auto& device) { lesson_07::lesson(device); });
}

TEST_CASE("lesson 8 on the emulated machine") {
    keeps_its_promises("08_one_layer_in_fp32.cpp", [](auto& device) { lesson_08::lesson(device); });
}

TEST_CASE("lesson 10 on the emulated machine") {
    keeps_its_promises("10_find_the_overflow.cpp", [](auto& device) { lesson_10::lesson(device); });
}

}  // namespace
