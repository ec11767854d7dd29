#!/usr/bin/env bash
# Fine-tunes on CLUE with the published settings, keeps the best checkpoint by
# the dev set, writes the submission files and one table of dev results:
#   bash run_classifier_clue.sh                   the whole board
#   bash run_classifier_clue.sh tnews csl         these
# The tasks: afqmc tnews iflytek ocnli cmnli wsc (or cluewsc2020) csl cmrc2018
# chid c3. What is not there is downloaded; albert_tiny_starter stands in for a
# model that cannot be. Flags of run_classifier.py, run_squad.py (cmrc2018) and
# run_race.py (chid, c3) may follow.
#   MODEL_DIR  folder of a checkpoint, instead of albert_tiny
#   CLUE_DATA  folder with a folder for each task (default data/clue); with a
#              folder diagnostics, ocnli and cmnli predict test.json in there
#   OUTPUT     folder for a folder of each task (default output/clue)
#   TEAM       name in that of the zip file to submit, which has all submission
#              files in OUTPUT: submit_TEAM_DATE.zip (default albert)
set -euo pipefail
shopt -s nullglob
cd "$(dirname "$0")"

declare -A settings=( # length, batch, rate, epochs
  [afqmc]="128 16 2e-5 3" [tnews]="128 16 2e-5 3" [iflytek]="128 32 2e-5 3"
  [ocnli]="128 32 2e-5 3" [cmnli]="128 64 3e-5 2" [wsc]="128 16 1e-5 10"
  [csl]="128 16 1e-5 5" [cmrc2018]="512 32 3e-5 2" [chid]="64 24 2e-5 3"
  [c3]="512 24 2e-5 8")
tasks=()
while [[ $# -gt 0 && $1 != -* ]]; do
  task=${1/#cluewsc2020/wsc}
  if [[ -z ${settings[$task]-} ]]; then
    echo "ERROR: no task $1; there are cluewsc2020 ${!settings[*]}" >&2
    exit 1
  fi
  tasks+=("$task")
  shift
done
[[ ${#tasks[@]} -gt 0 ]] ||
  tasks=(afqmc tnews iflytek ocnli cmnli wsc csl cmrc2018 chid c3)

source ./env.sh
data=${CLUE_DATA:-data/clue} out=${OUTPUT:-output/clue} model=${MODEL_DIR-}
[[ -n $model ]] || model=$("$PYTHON" download.py --or_starter \
  --item=albert_tiny --target=albert_tiny)
for task in "${tasks[@]}"; do
  "$PYTHON" download.py --item="$task" --target="$data/$task"
done
for task in "${tasks[@]}"; do
  read -r length batch rate epochs <<<"${settings[$task]}"
  command=(run_classifier.py --data_dir="$data/$task")
  tests=("$data/$task"/*test*)
  case $task in
    cmrc2018)
      command=(run_squad.py --train_file="$data/$task/train.json"
        --dev_file="$data/$task/dev.json" --max_answer_length=50
        ${tests[0]:+--test_file="${tests[0]}"}) ;;
    chid | c3) command=(run_race.py --data_dir="$data/$task") ;;
  esac
  "$PYTHON" "${command[@]}" --task_name="$task" --do_train --do_eval \
    ${tests[0]:+--do_predict} \
    --init_checkpoint="$model" --max_seq_length="$length" \
    --train_batch_size="$batch" --learning_rate="$rate" \
    --num_train_epochs="$epochs" --output_dir="$out/$task" "$@"
done

# By name, so that OCNLI's answers to the diagnostic set replace CMNLI's.
declare -A submissions=()
for path in "$out"/*/*_predict.json; do
  submissions[${path##*/}]=$path
done
if [[ ${#submissions[@]} -gt 0 ]]; then
  archive=$out/submit_${TEAM:-albert}_$(date +%Y-%m-%d).zip
  "$PYTHON" -m zipfile -c "$archive.tmp" "${submissions[@]}"
  mv "$archive.tmp" "$archive"
  echo "$archive has ${!submissions[*]}"
fi
echo "dev results of the best checkpoints:"
for task in "${tasks[@]}"; do
  printf '%-10s%s  %s\n' "$task" \
    "$(grep -E '^eval_(accuracy|exact) ' "$out/$task/best/eval_results.txt")" \
    "$(echo "$out/$task"/*_predict.json)"
done
