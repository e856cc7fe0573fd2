#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# halftone has no state outside of objects that the user creates: searches object files for writable data of the headers, including
# static variables in functions and thread-local variables.
#
#     tests/headers/statics.sh FILE.o...        compiled from code that uses halftone
#
# Constants are allowed (.rodata, .data.rel.ro). First it checks that it detects such data in an object that has some.
set -euo pipefail
cxx=${CXX:-c++}
for tool in objdump c++filt "$cxx"; do
    command -v "$tool" >/dev/null 2>&1 || { echo "skipped: there is no $tool"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# writable FILE: a line for each of halftone's variables in it that can change.
writable() {
    objdump -t "$1" | awk -F '\t' '
        {
            fields = split($1, part, " ")
            section = part[fields]
            if (section !~ /^\.(data|bss|tdata|tbss|ldata|lbss)/ || section ~ /^\.data\.rel\.ro/) next
            name = $2
            sub(/^[0-9a-f]+ +(\.hidden |\.protected |0x[0-9a-f]+ )*/, "", name)
            # Not what compilers keep for themselves: DW.ref.* for exceptions, __device_stub__* for kernels.
            if (name ~ /^_Z(GV)?Z*NK?8halftone/) print name
        }' | c++filt
}

cat >"$work/planted.cpp" <<'CODE'
namespace halftone {
inline namespace v9_9 {
inline int global = 1;
inline const int constant = 2;
inline thread_local int of_a_thread = 3;
template <class T>
int* count() {
    static int local = 4;
    return ++local, &local;
}
struct polymorphic {
    virtual ~polymorphic() = default;
};
const int* read() { return ++global, ++of_a_thread, new polymorphic, count<long>(), &constant; }
}  // namespace v9_9
}  // namespace halftone
CODE
"$cxx" -std=c++20 -c "$work/planted.cpp" -o "$work/planted.o"
writable "$work/planted.o" >"$work/found"
for name in global of_a_thread local; do
    grep -q "::$name" "$work/found" || { echo "statics: does not see the planted variable $name; it sees:"; cat "$work/found"; exit 1; }
done
if grep -q -e constant -e polymorphic "$work/found"; then
    echo "statics: takes constants for variables:"
    cat "$work/found"
    exit 1
fi

failed=0
for object in "$@"; do
    writable "$object" >"$work/found"
    if [[ -s "$work/found" ]]; then
        echo "$object has variables that outlive the objects of their user:"
        cat "$work/found"
        failed=1
    fi
done
if ((failed == 0)); then echo "$# object files, no variable of halftone's"; fi
exit $failed
