#!/usr/bin/env bash
# Every figure of docs/measurement.md and docs/kernels.md that changes of the code may move, in a limited time on a GPU.
#
#   python benchmarks/programs.py PROGRAMS.jsonl --each 10        beforehand, anywhere: needs no GPU
#   bash benchmarks/session.sh SECONDS OUT PROGRAMS.jsonl [PART...]
#
# PARTs, in the order in which they are named (without any: all, in this order; seconds are an H200's, with ~ a guess):
#   judge   score mode, all tasks one batch, each verdict judged again in full        70 s
#   tasks   score mode, a batch a task                                                ~70 s
#   knobs   raw times of the settings of the tasks in benchmarks/ties.txt             5 s a task
#   first   time to the first verified program, alone, of every third task            ~5 s a task
#   suite   first answers of the tasks that OUT/R.jsonl lacks, eight side by side     8 s a task, until the time is over
#   search  searches of 60 evaluations, four side by side                             what is left
# A part is stopped when the time is over. OUT gets a log a part, and the suite's records: merge those of several runs.
set -uo pipefail
[ $# -ge 3 ] || { sed -n "2,14p" "$0"; exit 2; }
cd "$(dirname "$0")/.."
seconds=$1 out=$2 programs=$3
shift 3
[ $# -gt 0 ] || set -- judge tasks knobs first suite search
[ -f "$programs" ] || { echo "$programs is no file: python benchmarks/programs.py writes one" >&2; exit 2; }
export PYTHONUNBUFFERED=1 PYTHONPATH=$PWD/src:$PWD${PYTHONPATH:+:$PYTHONPATH}
python=$(command -v python3)
[ -x .venv/bin/python ] && python=$PWD/.venv/bin/python
mkdir -p "$out"
begun=$(date +%s)
left() { echo $((seconds - $(date +%s) + begun)); }

part() { # NAME MOST COMMAND...
    local name=$1 most=$2 start
    shift 2
    [ "$(left)" -gt 15 ] || { echo "$name: no time left"; return; }
    [ "$most" -lt "$(left)" ] || most=$(($(left) - 5))
    start=$(date +%s)
    timeout -k 5 "$most" "$@" >"$out/$name.log" 2>&1
    echo "$name: exit $? after $(($(date +%s) - start)) s"
    tail -n 25 "$out/$name.log"
}

score() { # NAME MOST OPTIONS...
    local name=$1 most=$2
    shift 2
    part "$name" "$most" "$python" benchmarks/score.py "$programs" --tasks 5 --skip 9 --mutants 25 "$@"
}

rows() { # NAME STAGE-OPTIONS...
    local name=$1
    shift
    part "$name" "$(left)" "$python" -m benchmarks.suite --out "$out/R.jsonl" --only-missing --seconds $(($(left) - 15)) "$@"
}

for wanted in "$@"; do
    case $wanted in
        judge) score judge 150 --judge ;;
        tasks) score tasks 100 --no-full ;;
        knobs) part knobs "$(left)" "$python" benchmarks/knobs.py $(cat benchmarks/ties.txt) --out "$out/K.jsonl" --seconds $(($(left) - 20)) ;;
        first) part first 200 "$python" -m benchmarks.suite --out "$out/F.jsonl" --no-timing --only-missing --seconds 185 \
            --task $("$python" -m benchmarks.suite --out /dev/null --list | awk 'NR % 3 == 1') ;;
        suite) rows suite --lanes 8 ;;
        search) rows search --lanes 4 --search 60 ;;
        *) echo "no part $wanted" >&2; exit 2 ;;
    esac
done
