// SPDX-License-Identifier: MIT
/// \file
/// The PTX that nvcc has generated from a source, parsed into functions of instructions.
///
/// Every operand is a register: numbers, addresses of variables, and special registers (%tid, for instance) are stored in
/// additional registers, which are set when a function begins. A function is parsed when it is first used.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace halftone::ptx {

struct failure : std::runtime_error {
    using runtime_error::runtime_error;
};

inline constexpr int lanes = 32;
using lane_mask = std::uint32_t;

class warp;
struct instruction;
/// Executes an instruction for the lanes of the mask.
using handler = void (*)(warp&, const instruction&, lane_mask);

enum class space : std::uint8_t { generic, global, shared, local, param };

/// The fields of an instruction that the loop which runs a warp reads; the others are for its handler.
enum class flow : std::uint8_t { next, branch, branch_table, call, leave, block_barrier, warp_wide, wait };

struct instruction {
    handler run = nullptr;
    flow kind = flow::next;
    std::int32_t guard = -1;  ///< a predicate; -1: none
    bool is_guard_negated = false;
    std::vector<std::int32_t> to, from;  ///< registers; -1 for a sink, whose value is not used
    std::int64_t offset = 0;             ///< of an address
    std::int32_t members = -1;           ///< the register with the member mask of a warp-wide instruction; -1: all lanes
    std::int32_t option = 0;             ///< bytes, a comparison, a shuffle's mode: the handler's own
    std::uint32_t target = 0;            ///< of a branch
    std::vector<std::uint32_t> targets;  ///< of a branch by table
    space at = space::generic;
    std::string callee{};
    std::string text;  ///< the text in the source, for error messages
};

/// The offset of a parameter among a function's parameters, or of a variable in its local memory.
struct variable {
    std::uint64_t offset = 0, bytes = 0;
};

struct function {
    std::string name;
    bool is_entry = false;
    std::vector<instruction> code;
    int registers = 0;
    std::vector<std::pair<std::int32_t, std::uint64_t>> constants;  ///< registers that hold a number
    std::vector<std::pair<std::int32_t, std::size_t>> special_registers;  ///< registers that hold %tid.x and the like
    std::vector<variable> parameters, results;
    std::vector<std::vector<variable>> given;  ///< of each call that it contains: results, then arguments
    std::uint64_t parameter_bytes = 0;         ///< of a thread's parameter memory
    std::uint64_t kernel_parameter_bytes = 0;
    std::uint64_t local_bytes = 0, shared_bytes = 0;
    int threads_at_most = 0;
    mutable std::vector<std::uint64_t> executed;  ///< how often warps executed each instruction
};

/// This bit of an address distinguishes parameters of kernels from those of calls.
inline constexpr std::uint64_t kernel_parameter = std::uint64_t{1} << 40;

class module {
  public:
    explicit module(std::string source);

    /// Throws failure if there is no function of that name, or if it contains something that this machine does not support.
    const function& named(const std::string& name);
    bool has(const std::string& name) const { return places_.count(name) != 0; }
    int version() const { return architecture_; }
    /// The host memory of the variable; nullptr if there is none of that name.
    std::byte* global(const std::string& name);
    /// The functions that have been parsed.
    const std::map<std::string, std::unique_ptr<function>>& functions() const { return functions_; }
    /// All variables, which kernels may read and write.
    const std::map<std::string, std::vector<std::uint64_t>>& globals() const { return globals_; }

  private:
    friend class reader;
    struct place {
        std::size_t head = 0, body = 0, end = 0;
        bool is_entry = false;
    };

    std::string source_;
    int architecture_ = 0;
    std::map<std::string, place> places_;
    std::map<std::string, std::unique_ptr<function>> functions_;
    std::map<std::string, std::vector<std::uint64_t>> globals_;
    struct shared_variable {
        std::uint64_t bytes = 0, alignment = 1;
    };
    std::map<std::string, shared_variable> shared_;  // a variable of 0 bytes is the memory that a launch requests
};

/// The machine's number of a special register, as %tid.x; throws failure for an unknown name.
std::size_t special_register_named(std::string_view name);

/// Fills in the handler of the instruction with this name; an unknown instruction fails when it is executed.
void decode(instruction& i, const std::vector<std::string_view>& words);

}  // namespace halftone::ptx
