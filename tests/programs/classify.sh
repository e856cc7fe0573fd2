#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Tests classify_images and classify_text as programs: what they write, their error messages.
#
#     tests/programs/classify.sh CLASSIFY_IMAGES CLASSIFY_TEXT
set -uo pipefail
images=$1
texts=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# number N: four bytes, the highest first. squares COUNT: images of 8 x 8, of which the upper or the lower half is bright.
number() { printf '%b' "$(printf '\\x%02x\\x%02x\\x%02x\\x%02x' $(($1 >> 24)) $(($1 >> 16 & 255)) $(($1 >> 8 & 255)) $(($1 & 255)))"; }
squares() {
    printf '\x00\x00\x08\x03'
    number "$1"; number 8; number 8
    local bright dark
    bright=$(printf '\\xf0%.0s' {1..32})
    dark=$(printf '\\x10%.0s' {1..32})
    for ((i = 0; i < $1; ++i)); do
        if ((i % 3 == 0)); then printf '%b' "$dark$bright"; else printf '%b' "$bright$dark"; fi
    done
}
labels() {
    printf '\x00\x00\x08\x01'
    number "$1"
    for ((i = 0; i < $1; ++i)); do if ((i % 3 == 0)); then printf '\x01'; else printf '\x00'; fi; done
}
mkdir data
squares 60 >data/train-images-idx3-ubyte; labels 60 >data/train-labels-idx1-ubyte
squares 30 >data/t10k-images-idx3-ubyte; labels 30 >data/t10k-labels-idx1-ubyte

# ---- a run leaves a table and summary.json; what it learns is easy

# complete PROGRAM: the last run of the program has four rows, and fields for each.
complete() {
    for name in full_fp32 amp_fp16 amp_bf16 small_bf16; do
        grep -Eq "^$name +[0-9.]+ +[0-9.]+% +[0-9]+ +[0-9.]+ +[0-9.]+% +[0-9.]+ +[0-9]+$" out || fail "$1: the table lacks $name"
        grep -q "^$name 100%" err || fail "$1: the progress lacks $name"
        grep -q "\"name\": \"$name\"" "$1/summary.json" || fail "$1: summary.json lacks $name"
    done
    for field in policy device parameters steps train_loss test_accuracy samples_per_second step_ms seconds seconds_waited peak_bytes \
        skipped_steps loss_scale; do
        (($(grep -c "\"$field\":" "$1/summary.json") == 4)) || fail "$1: a run of summary.json lacks $field"
    done
    [[ $(ls "$1") == summary.json ]] || fail "$1: a run leaves $(ls "$1")"
}
# numbers FOLDER: what may not depend on threads.
numbers() { grep -E '"(train_loss|test_accuracy)"' "$1/summary.json"; }

"$images" --data data --epochs 6 --batch 10 --out images_out >out 2>err || fail "classify_images ends with $?: $(cat err)"
complete images_out
(($(grep -c '"test_accuracy": 1.0' images_out/summary.json) == 4)) || fail "images: $(grep test_accuracy images_out/summary.json)"
"$images" --data data --epochs 6 --batch 10 --workers 3 --threads 1 --out again >out 2>err || fail "with workers: $?"
[[ $(numbers images_out) == "$(numbers again)" ]] || fail "the numbers depend on the number of workers"
grep -q '"steps": 36' images_out/summary.json || fail "images: $(grep '"steps"' images_out/summary.json)"

small=(--reviews 60 --epochs 3 --length 24 --width 32 --layers 1 --heads 2)
"$texts" "${small[@]}" --out reviews >out 2>err || fail "classify_text ends with $?: $(cat err)"
complete reviews
"$texts" "${small[@]}" --workers 3 --threads 1 --out more >out 2>err || fail "texts with workers: $?"
[[ $(numbers reviews) == "$(numbers more)" ]] || fail "the numbers of texts depend on the number of workers"
mkdir -p folder/{good,bad}
for i in {1..12}; do echo "a fine thing $i" >"folder/good/$i.txt"; echo "a poor thing $i" >"folder/bad/$i.txt"; done
"$texts" --data folder --test folder --epochs 8 --length 8 --width 16 --layers 1 --heads 2 --policy amp_bf16 --out own >out 2>err ||
    fail "classify_text --data: $?: $(cat err)"
grep -q '^24 training texts, 24 test texts, 2 classes' out || fail "a folder: $(cat out)"

# ---- bad input: one line, exit code 2, nothing left behind

# refuse PROGRAM PATTERN ARGUMENT...
refuse() {
    local program=$1 pattern=$2 code
    shift 2
    "$program" --out refused/deep "$@" >out 2>err
    code=$?
    ((code == 2)) || fail "$* ends with $code: $(cat err)"
    (($(wc -l <err) == 1)) || fail "$* says: $(cat err)"
    grep -q "^classify_[a-z]*: .*$pattern" err || fail "$* says: $(cat err)"
    [[ ! -e refused ]] || fail "$* leaves $(find refused)"
    rm -rf refused
}
damaged() { rm -rf damaged && cp -r data damaged; }
refuse "$images" 'there is no folder missing' --data missing
damaged; rm damaged/t10k-labels-idx1-ubyte
refuse "$images" 'there is no damaged/t10k-labels-idx1-ubyte' --data damaged
damaged; head -c 1000 data/train-images-idx3-ubyte >damaged/train-images-idx3-ubyte
refuse "$images" 'says 60 x 8 x 8 elements, which take 3856 bytes with the header; it has 1000' --data damaged
damaged; : >damaged/train-labels-idx1-ubyte
refuse "$images" 'train-labels-idx1-ubyte is empty' --data damaged
damaged; cp data/t10k-labels-idx1-ubyte damaged/train-labels-idx1-ubyte
refuse "$images" 'has 60 images, .* has 30 labels' --data damaged
damaged; cp "$0" damaged/train-images-idx3-ubyte 2>/dev/null || echo text >damaged/train-images-idx3-ubyte
refuse "$images" 'expected 0 0 8' --data damaged
refuse "$images" '--classes is 1' --data data --classes 1
refuse "$images" '--epochs is 0' --data data --epochs 0
refuse "$images" '--lr is nan' --data data --lr nan
refuse "$images" "there is no 'fp8'" --data data --policy fp8
refuse "$images" 'named twice' --data data --policy amp_bf16,amp_bf16
refuse "$images" '--workers is -1' --data data --workers -1
refuse "$images" 'not expected' --data data --no-such-option
refuse "$texts" 'there is no missing' --data missing
mkdir -p one/good && echo x >one/good/1.txt
refuse "$texts" 'has one class, good' --data one
mkdir -p one/bad && : >one/bad/1.txt
refuse "$texts" 'one/bad/1.txt is empty' --data one
refuse "$texts" '--heads is 3' --data folder --heads 3
refuse "$texts" '--held-out is 1' --data folder --held-out 1
refuse "$texts" '--words is 3' --data folder --words 3

if ((failures)); then exit 1; fi
echo "classify_images and classify_text behave"
