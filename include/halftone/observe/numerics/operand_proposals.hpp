// SPDX-License-Identifier: MIT
/// \file
/// Proposals of a numerics view (numerics.hpp) for layers with 8-bit operands: where numbers saturate or become zero,
/// why, and which scaling or type avoids it. Included by numerics.hpp only.
#pragma once

#include <string>

#include <halftone/observe/numerics/operand_counts.hpp>
#include <halftone/observe/report/table.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Objections to how a layer's operands are scaled, or to eight bits.
struct operand_findings {
    std::string reasons;
    bool scaling_helps = true;
};

/// "the input"; for a layer with several products "the input of up".
inline std::string operand_text(const operand_counts& o, const std::string& parameter, const std::string& layer) {
    std::string text = name(o.tensor);
    const std::size_t end = parameter.rfind('.');
    if (end != std::string::npos && end > layer.size() + 1 && parameter.compare(0, layer.size() + 1, layer + ".") == 0)
        text += " of " + parameter.substr(layer.size() + 1, end - layer.size() - 1);
    return text;
}

/// Whether more than this fraction became zero, or saturated; or the largest number was halved.
inline void judge_operand(value_format format, const operand_counts& o, const tensor_statistics& counts, const std::string& what,
                          double threshold, operand_findings& findings) {
    const float largest = static_cast<float>(format->max);
    const auto share = [&](extent n, extent of) {
        return of == 0 ? 0.0 : static_cast<double>(n) / static_cast<double>(of);
    };
    const auto add = [&](const std::string& reason) {
        findings.reasons += (findings.reasons.empty() ? "" : "; ") + reason;
    };
    const extent finite = counts.finite(), numbers = finite - counts.zeros + o.flushed;
    const auto of_all = [&](extent n, extent of) {
        return std::to_string(n) + " of " + std::to_string(of) + " (" + percent_text(share(n, of)) + ") of the " + what;
    };
    const std::string type = name(format), scale = number_text(static_cast<double>(o.scale)),
                      amax = number_text(static_cast<double>(o.amax));
    // The first window, without history; with powers of two a scale of 1 may also come from an amax.
    const bool is_first = o.is_delayed() && o.scale == 1 && o.rule.steps == scale_steps::any;
    const std::string made_for =
        is_first ? "the one that delayed scaling begins with"
                 : "for an amax of " +
                       number_text(static_cast<double>(largest / o.scale / static_cast<float>(1 << o.rule.margin)));
    if (o.saturated > 0 && (share(o.saturated, numbers) > threshold || o.amax > 2 * largest / o.scale)) {
        add(of_all(o.saturated, numbers) + " saturate in " + type + ": the scale is " + scale + ", " + made_for +
            ", and the amax is " + amax +
            (o.is_delayed() ? ": delayed scaling had not met one as large; scale by the tensor's own amax "
                              "(current_scaling), or take a longer history than " +
                                  std::to_string(o.rule.history) + " windows"
                            : ""));
        findings.scaling_helps = findings.scaling_helps && o.is_delayed();
    }
    if (share(o.flushed, numbers) > threshold) {
        const bool is_stale = share(o.flushed_by_own, numbers) <= threshold;
        add(of_all(o.flushed, numbers) + " are zeros in " + type + " at a scale of " + scale +
            (is_stale ? ", " + made_for + ", and the amax is " + amax + ": by its own scale " +
                            percent_text(share(o.flushed_by_own, numbers)) + " would be (current_scaling)"
                      : ", and by the scale of its own amax, " + amax + ", " +
                            percent_text(share(o.flushed_by_own, numbers)) +
                            " would be: its magnitudes span more than the format's range"));
        findings.scaling_helps = findings.scaling_helps && is_stale;
    }
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
