// SPDX-License-Identifier: MIT
/// \file
/// The precision ledger as a table for people and as JSON.
///
///     ht::print_ledger<ht::nn::gpt<recipe>>(std::cout);
///     ht::print_ledger(std::cout, recorder.entries());          // of observe/ledger/ledger.hpp
///     const std::string json = ht::ledger_json<ht::nn::gpt<recipe>>();
#pragma once

#include <array>
#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

#include <halftone/config.hpp>
#include <halftone/policy/ledger.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail::ledger {

inline std::string casts_text(const ledger_entry& e) {
    std::string text;
    for (const ledger_operand& o : e.operands) {
        if (!o.is_cast) continue;
        if (!text.empty()) text += ", ";
        text += std::string(o.name) + ": " + o.stored + " as " + o.read;
    }
    return text.empty() ? "-" : text;
}

/// Where the operation is called: its layer's path, "h.*.fc"; for a free operation "after h.*.fc", as watched tapes
/// say.
inline std::string place_text_of(const ledger_entry& e) {
    return *e.after == 0 ? std::string(e.path) : std::string("after ") + e.after;
}

}  // namespace detail::ledger

/// Prints lines under their headings, in aligned columns.
template <class Entries>
void print_ledger(std::ostream& out, const Entries& entries) {
    std::vector<std::array<std::string, 7>> rows{{"path", "op", "pass", "in", "accumulate", "out", "casts"}};
    for (const ledger_entry& e : entries)
        rows.push_back({detail::ledger::place_text_of(e), e.op, name(e.pass), e.in, e.accumulate, e.out,
                        detail::ledger::casts_text(e)});
    std::array<std::size_t, 7> widths{};
    for (const auto& row : rows) {
        for (std::size_t i = 0; i < row.size(); ++i) widths[i] = row[i].size() > widths[i] ? row[i].size() : widths[i];
    }
    for (const auto& row : rows) {
        for (std::size_t i = 0; i + 1 < row.size(); ++i)
            out << row[i] << std::string(widths[i] + 2 - row[i].size(), ' ');
        out << row.back() << '\n';
    }
}
template <class Model, class Input = void>
void print_ledger(std::ostream& out) {
    print_ledger(out, ledger<Model, Input>);
}

/// Lines of a ledger as a JSON array of objects: path, op, pass, in, accumulate, out, after (of a free operation that
/// was called: the layer before it), operands (name, stored, read), casts (their number).
template <class Entries>
std::string ledger_json(const Entries& entries) {
    std::string text = "[";
    const auto quoted = [](const char* s) { return '"' + std::string(s) + '"'; };  // names and paths have nothing to escape
    for (const ledger_entry& e : entries) {
        if (text.size() > 1) text += ",";
        text += "\n {\"path\": " + quoted(e.path) + ", \"op\": " + quoted(e.op) +
                ", \"pass\": " + quoted(name(e.pass)) + ", \"in\": " + quoted(e.in) +
                ", \"accumulate\": " + quoted(e.accumulate) + ", \"out\": " + quoted(e.out) +
                ", \"after\": " + quoted(e.after) + ", \"operands\": [";
        const char* separator = "";
        for (const ledger_operand& o : e.operands) {
            if (o.name == nullptr) continue;
            text += std::string(separator) + "{\"name\": " + quoted(o.name) + ", \"stored\": " + quoted(o.stored) +
                    ", \"read\": " + quoted(o.read) + "}";
            separator = ", ";
        }
        text += "], \"casts\": " + std::to_string(e.casts()) + "}";
    }
    return text + "\n]\n";
}
template <class Model, class Input = void>
std::string ledger_json() {
    return ledger_json(ledger<Model, Input>);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
