#!/bin/sh
# SPDX-License-Identifier: MIT
# Sets up, builds and runs the main job: plan -> code -> verify on a real task, on the GPU if there is one, otherwise on the
# simulator. Replies come from a recording; set STITCH_MODEL=https://HOST/v1#NAME (and STITCH_API_KEY) for a live model.
#
# usage: sh examples/quickstart.sh [OPTIONS OF stitch run]
set -eu
cd "$(dirname "$0")/.."
. examples/setup.sh
stitch_setup
stitch_build

if build/examples/stitch doctor --json | grep -q '"name":"driver","status":"ok"'; then
    task=gpt_block
else
    task=swiglu_mlp
    stitch_say "no GPU driver found: programs run on the simulator, which tells right from wrong but not how fast"
fi
model=${STITCH_MODEL:-replay:examples/replies/$task.jsonl}
stitch_say "task: examples/tasks/$task, model: $model"
[ -n "${STITCH_MODEL:-}" ] || stitch_say "the first recorded programs are wrong on purpose, to show how they are found out and repaired"
exec build/examples/stitch run --task "examples/tasks/$task/task.json" --model "$model" --out "build/$task.stitch" "$@"
