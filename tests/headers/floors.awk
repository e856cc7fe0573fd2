# SPDX-License-Identifier: MIT
# Reads all headers, with names relative to include/, and prints each violation of the rules in floors.sh.

BEGIN {
    split("number policy memory tensor exec kernel autodiff nn scale optim compiled data io observe ranks train", names, " ")
    split("1      2      3      3      4    5      6        7  8     8     8        9    9  9       9    10", numbers, " ")
    for (i in names) floor_of[names[i]] = numbers[i]
}

BEGIN {
    # The operations of rooms that have several.
    operations["norm"] = "layer_norm rms_norm"
    # What stands beside an operation's own files all the same: what users write as a product's epilogue, and bodies of the CPU.
    exceptions = "matmul/epilogue.hpp map/evaluate.hpp map/evaluate.simd.hpp exponent_counts/histogram_bin.cuh optimizer_step/function.hpp"
    count = split(exceptions, names, " ")
    for (i = 1; i <= count; i++) known_exceptions["halftone/kernel/" names[i]] = 1
}

function complain(text) { print text; breaches++ }

FNR == 1 {
    file = FILENAME
    files[++file_count] = file
    if ($0 !~ /SPDX-License-Identifier: MIT$/) complain(file ": does not begin with its SPDX line")
}
FNR <= 60 && /\/\/ Longer than 600 lines because / { long_with_reason[file] = 1 }
{ lines[file] = FNR }

/^[ \t]*#[ \t]*include[ \t]*</ {
    target = $0
    sub(/^[^<]*</, "", target)
    sub(/>.*/, "", target)
    named[file, ++named_count[file]] = target
    named_at[file, named_count[file]] = FNR
    header = file
    sub(/\.body\.hpp$/, ".hpp", header)
    if (target == header) {
        # A header includes its bodies at its end.
    } else if (target ~ /^halftone\//) {
        includes[file, ++include_count[file]] = target
        included_at[file, include_count[file]] = FNR
    } else if (target ~ /^(format|ranges|source_location|iostream|regex)$/) {
        complain(file ": includes <" target ">, which is too heavy or too new for a header of halftone")
    } else if (target ~ /intrin\.h$/ || target ~ /^arm_/) {
        if (file !~ /^halftone\/exec\/cpu\//) complain(file ": includes <" target ">, which only exec/cpu may")
    } else if (target ~ /^(sstream|functional|algorithm)$/ && file ~ /^halftone\/(number|policy)\//) {
        complain(file ": includes <" target ">, which is too heavy for number/ and policy/")
    }
}
/^[ \t]*#[ \t]*include[ \t]*"/ { complain(file ": line " FNR " includes by quotes; headers are <halftone/...>") }

# The SIMD body that is included by the next exec/cpu/each_set.hpp.
/^[ \t]*#[ \t]*define[ \t]+HALFTONE_BODY[ \t]*</ {
    target = $0
    sub(/^[^<]*</, "", target)
    sub(/>.*/, "", target)
    includes[file, ++include_count[file]] = target
    included_at[file, include_count[file]] = FNR
}

/^[ \t]*#[ \t]*define[ \t]+HALFTONE_/ {
    macro = $0
    sub(/^[ \t]*#[ \t]*define[ \t]+/, "", macro)
    sub(/[^A-Za-z0-9_].*/, "", macro)
    defined_at[file, macro] = FNR
}
/^[ \t]*#[ \t]*undef[ \t]+HALFTONE_/ {
    macro = $0
    sub(/^[ \t]*#[ \t]*undef[ \t]+/, "", macro)
    sub(/[^A-Za-z0-9_].*/, "", macro)
    delete defined_at[file, macro]
    takes_back[file, macro] = 1
}
# What a header takes back, or another that it includes thereafter, leaves nothing to those who include it.
function is_left(file, macro,    i, target) {
    for (i = 1; i <= include_count[file]; i++) {
        target = includes[file, i]
        if (included_at[file, i] > defined_at[file, macro] && (target, macro) in takes_back && !((target, macro) in defined_at))
            return 0
    }
    return 1
}

# A SIMD body is included in regions of instruction sets, where no header may be included for the first time: all that it
# includes has been included before by who includes it.
function reach(file, line,    i) {
    for (i = 1; i <= named_count[file]; i++)
        if (!line || named_at[file, i] < line) reached_names[named[file, i]] = 1
    for (i = 1; i <= include_count[file]; i++) {
        if (line && included_at[file, i] >= line) continue
        if (includes[file, i] in reached_files) continue
        reached_files[includes[file, i]] = 1
        reach(includes[file, i])
    }
}
function check_body(file, body, line,    i) {
    delete reached_names
    delete reached_files
    reach(file, line)
    for (i = 1; i <= named_count[body]; i++)
        if (!(named[body, i] in reached_names))
            complain(file ": line " line " includes " body " in a region of an instruction set, but has not included <" \
                     named[body, i] ">, as the body does, before")
}

# The shape of the rooms. In kernel/ a folder is an operation, or several that are one idea: of each its arguments and contract,
# then the definition, what the CPU and devices run, and the kernels in double; everything else is in sub-folders. kernel/common
# has what operations share, in folders by topic.
function check_room(file,    parts, count, stem, i, names) {
    count = split(file, parts, "/")
    if (parts[2] == "autodiff" && (count == 3 || parts[3] !~ /^(engine|op|double_backward)$/))
        complain(file ": autodiff/ has engine/, op/ and double_backward/, and nothing beside them")
    if (parts[2] == "observe" && count == 3 && parts[3] !~ /^(check_gradients|operations)\.hpp$/)
        complain(file ": observe/ has only folders, check_gradients.hpp and operations.hpp")
    if (parts[2] != "kernel" || count != 4) return
    if (file in known_exceptions) { met[file] = 1; return }
    if (parts[3] == "common") { complain(file ": kernel/common/ has only folders"); return }
    if (parts[4] ~ /^(reference|device|fp64)\.hpp$/ || parts[4] ~ /^cpu\.(hpp|inc|simd\.hpp)$/) return
    sub(/\.body\.hpp$/, ".hpp", parts[4])
    if (parts[4] == parts[3] ".hpp" || parts[4] == "cpu.hpp") return
    split(operations[parts[3]], names, " ")
    for (i in names) if (parts[4] == names[i] ".hpp") return
    complain(file ": a room in kernel/ has " parts[3] ".hpp, reference.hpp, cpu.*, device.hpp and fp64.hpp; this belongs " \
                  "into a sub-folder")
}

# The floor a file stands on. config, version and error are floor 0; any other file directly in halftone/ is an
# umbrella, which stands on the highest floor it includes. Walking the includes also finds circles.
function visit(file,    i, target, own, below, reached, parts, circle) {
    if (state[file] == "done") return floor[file]
    if (state[file] == "open") {
        for (i = stack_size; stack[i] != file; i--) circle = " > " stack[i] circle
        complain("a circle: " file circle " > " file)
        return 0
    }
    state[file] = "open"
    stack[++stack_size] = file
    own = split(file, parts, "/") > 2 ? floor_of[parts[2]] : (file ~ /^halftone\/(config|version|error)\.hpp$/ ? 0 : -1)
    if (own == "") complain(file ": stands in a folder that has no floor")
    reached = 0
    for (i = 1; i <= include_count[file]; i++) {
        target = includes[file, i]
        if (!(target in lines)) { complain(file ": includes <" target ">, which does not exist"); continue }
        below = visit(target) + 0
        if (own != -1 && below > own + 0)
            complain(file " (floor " own "): includes <" target ">, which reaches floor " below)
        if (below > reached) reached = below
    }
    stack_size--
    state[file] = "done"
    return floor[file] = (own == -1 ? reached : own) + 0
}

END {
    for (i = 1; i <= file_count; i++) {
        file = files[i]
        visit(file)
        check_room(file)
        if (lines[file] > 600 && !(file in long_with_reason))
            complain(file ": " lines[file] " lines, more than 600, and no line near its top says " \
                     "'// Longer than 600 lines because ...'")
        if (file ~ /\.simd\.hpp$/) continue
        for (k = 1; k <= include_count[file]; k++)
            if (includes[file, k] ~ /\.simd\.hpp$/) check_body(file, includes[file, k], included_at[file, k])
    }
    for (both in defined_at) {
        split(both, part, SUBSEP)
        if (!(part[2] in macros) && is_left(part[1], part[2])) { macros[part[2]] = part[1]; macro_count++ }
    }
    for (file in known_exceptions) {
        if (!(file in met)) complain(file ": is an exception in tests/headers/floors.awk, and does not exist")
    }
    if (macro_count > 22) {
        text = macro_count " macros named HALFTONE_*, 22 are allowed:"
        for (macro in macros) text = text " " macro
        complain(text)
    }
    if (breaches) { print breaches " breaches"; exit 1 }
    print file_count " headers stand on their floors; " macro_count " macros"
}
