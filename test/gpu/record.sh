#!/usr/bin/env bash
# test/gpu/record.sh PART…: what RECORD.md is written from, in parts of three to ten minutes. Each leaves logs in $OUT (else in a new
# folder) and prints its rows. Run in the root of the tree, with CACHALOT_BUILD.
#
#   correct   all short cases, coverage, storms, the hunter in async; the programs of CACHALOT_PROGRAMS (run.py --programs)
#   hunted    the hunter in fence and strict, orders that are easy to hang, peak reserved of all workloads
#   rates     alone on the machine: a cached pair, sixteen streams, a watched launch, gptfix in processes of its own, what recording costs
#   pairs     steps beside PyTorch's own cache, of all workloads; CACHALOT_TORCH_WORK is run.py's --torch-work
#   memory    steps and device memory beside PyTorch's expandable segments, of all workloads
#   traced    traces of the small PyTorch programs of traced/, as programs/NAME.csv.xz (test/replay/traces has 105 of them)
#   runtimes  programs of test/preload built with other cudarts, in folders of CACHALOT_RUNTIMES: natively and in front
#
# With two GPUs `pairs` and `memory` take one half on each.
set -u
OUT=${OUT:-$(mktemp -d)}
WORK=(unet-train lstm gptfix decode gpt resnet50 unet-sample)
export PYTHONUNBUFFERED=1

# logged LOG COMMAND…: its end is said.
logged() {
    local log=$1 from=$SECONDS code=0
    shift
    "$@" >>"$OUT/$log.log" 2>&1 || code=$?
    printf '%s: exit code %d, %d s, at %d s\n' "$log" "$code" $((SECONDS - from)) "$SECONDS"
}

cases() {
    local log=$1
    shift
    logged "$log" python3 test/gpu/run.py --out "$(mktemp -d)" "$@"
}

# halves LOG CASE ARGUMENT…
halves() {
    local log=$1
    shift
    if [ "$(nvidia-smi -L | wc -l)" -lt 2 ]; then
        cases "$log" "$@" --work "${WORK[@]}"
        return
    fi
    CUDA_VISIBLE_DEVICES=0 cases "$log-0" "$@" --work "${WORK[@]:0:3}" &
    CUDA_VISIBLE_DEVICES=1 cases "$log-1" "$@" --work "${WORK[@]:3}" &
    wait
}

memory() {
    halves expandable pairs --own-conf expandable_segments:True
    halves footprint footprint
}

correct() {
    cases correct --jobs 8 --except timing --except recording-cost &
    (sleep 15 && cases hunter-async hunter --seconds 13 --styles aa --modes async) &
    (sleep 60 && cases coverage coverage storm) &
    wait
    [ -z "${CACHALOT_PROGRAMS:-}" ] || cases programs programs --programs "$CACHALOT_PROGRAMS" --jobs 12
}

hunted() {
    cases reserved reserved --work "${WORK[@]}" &
    cases hunter hunter --seconds 13 --styles aa --modes fence
    cases hunter hunter --seconds 26 --styles aa --modes strict
    wait
    cases hang hang
}

rates() {
    logged bench python3 test/bench/bench.py --gpu "$(scripts/build/cuda_home.sh)" --compiler nvcc
    cases rates streams16 --modes async
    cases rates launch-rate --only watched
    cases rates timing
    cases rates recording-cost
}

# trace NAME FOLDER: what it asks for, without PyTorch's cache, in front of us.
trace() {
    timeout -k 5 60 env PYTORCH_NO_CUDA_MEMORY_CACHING=1 CACHALOT_TRACE="$2/$1.trace" CACHALOT_OUTPUT="$2/$1.json" \
        LD_PRELOAD="$CACHALOT_BUILD/libcachalot.so" python3 test/gpu/traced/run.py "$1" >"$2/$1.log" 2>&1 ||
        { printf '%s: FAILED: exit code %d\n' "$1" $? && return; }
    # Lines `op,id,bytes,stream`: an id counts the allocations, and an address means the last one there.
    scripts/cachalot export "$2/$1.trace" --csv - | awk -F, 'BEGIN { print "op,id,bytes,stream" }
        $3 == "allocate" { id[$4] = count + 0; printf "a,%d,%s,0\n", count++, $5 }
        $3 == "free" && $4 in id { printf "f,%d,,0\n", id[$4]; delete id[$4] }' >"$2/$1.csv"
}

traced() {
    local folder
    folder=$(mktemp -d)
    export -f trace
    export CACHALOT_BUILD
    python3 test/gpu/traced/run.py --list | xargs -P 8 -I{} bash -c 'trace {} "$0"' "$folder"
    xz -9e -- "$folder"/*.csv
    mkdir -p "$OUT/programs" && cp "$folder"/*.csv.xz "$OUT/programs"
}

run_times() {
    local program folder report
    report=$(mktemp -d)/report.json
    for program in "$CACHALOT_RUNTIMES"/*/*; do
        case $program in *.so*) continue ;; esac
        folder=${program%/*}
        rm -f "$report"
        LD_LIBRARY_PATH=$folder:${LD_LIBRARY_PATH:-} "$program" >"$OUT/native" 2>&1
        LD_LIBRARY_PATH=$folder:${LD_LIBRARY_PATH:-} LD_PRELOAD=$CACHALOT_BUILD/libcachalot.so CACHALOT_OUTPUT=$report "$program" >"$OUT/front" 2>&1
        cmp -s "$OUT/native" "$OUT/front" && printf 'the same output: ' || printf 'DIFFERENT OUTPUT: '
        printf '%s: ' "${program#"$CACHALOT_RUNTIMES"/}"
        python3 -c 'import json, sys; r = json.load(open(sys.argv[1])); print(r["totals"]["requests"], "requests,", r["coverage"]["status"])' "$report"
    done
    rm -f "$OUT/native" "$OUT/front"
}

for part; do
    case $part in
    correct | hunted | rates | memory | traced) "$part" ;;
    pairs) halves pairs pairs ;;
    runtimes) logged runtimes run_times ;;
    *)
        sed -n '2,13p' "$0" >&2
        exit 2
        ;;
    esac
done
grep -hE ' (ok|FAILED|note) |ns |M/s|output: ' "$OUT"/*.log | cut -c1-240
! grep -q 'FAILED\|DIFFERENT' "$OUT"/*.log
