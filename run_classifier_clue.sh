#!/usr/bin/env bash
# Fine-tunes on CLUE with the published settings, keeps the best checkpoint by
# the dev set, writes the submission files and one table of dev results:
#   bash run_classifier_clue.sh                   all six tasks
#   bash run_classifier_clue.sh tnews csl         these
# What is not there is downloaded. Flags of run_classifier.py may follow.
#   MODEL_DIR  folder of the checkpoint (default albert_tiny, see download.py)
#   CLUE_DATA  folder with a folder for each task (default data/clue)
#   OUTPUT     folder for a folder of each task (default output/clue)
set -euo pipefail
cd "$(dirname "$0")"

declare -A settings=( # length, batch, rate, epochs
  [afqmc]="128 16 2e-5 3" [cmnli]="128 64 3e-5 2" [csl]="128 16 1e-5 5"
  [iflytek]="128 32 2e-5 3" [tnews]="128 16 2e-5 3" [wsc]="128 16 1e-5 10")
tasks=()
while [[ $# -gt 0 && $1 != -* ]]; do
  if [[ -z ${settings[$1]-} ]]; then
    echo "ERROR: no task $1; there are ${!settings[*]}" >&2
    exit 1
  fi
  tasks+=("$1")
  shift
done
[[ ${#tasks[@]} -gt 0 ]] || tasks=(afqmc tnews iflytek cmnli csl wsc)

source ./env.sh
model=${MODEL_DIR:-albert_tiny} data=${CLUE_DATA:-data/clue}
out=${OUTPUT:-output/clue}
"$PYTHON" download.py --item=albert_tiny --target="$model"
for task in "${tasks[@]}"; do
  "$PYTHON" download.py --item="$task" --target="$data/$task"
done
for task in "${tasks[@]}"; do
  read -r length batch rate epochs <<<"${settings[$task]}"
  "$PYTHON" run_classifier.py --task_name="$task" --data_dir="$data/$task" \
    --do_train --do_eval --do_predict --init_checkpoint="$model" \
    --max_seq_length="$length" --train_batch_size="$batch" \
    --learning_rate="$rate" --num_train_epochs="$epochs" \
    --output_dir="$out/$task" "$@"
done
echo "dev results of the best checkpoints:"
for task in "${tasks[@]}"; do
  printf '%-10s%s  %s\n' "$task" \
    "$(grep eval_accuracy "$out/$task/best/eval_results.txt")" \
    "$out/$task/${task}_predict.json"
done
