#!/usr/bin/env bash
# Fine-tunes on CLUE, keeps the best checkpoint on dev, writes a submission and
# a table of dev results:
#   bash run_classifier_clue.sh                     the whole board
#   bash run_classifier_clue.sh tnews csl           these tasks
#   SIZE=base bash run_classifier_clue.sh cluener   with a larger model
# The board: afqmc tnews iflytek ocnli cmnli wsc (or cluewsc2020) csl cmrc2018
# chid c3. Also: cluener. Missing data and models are downloaded; without SIZE
# and MODEL, if albert_tiny cannot be, albert_tiny_starter is used, with a
# notice. Flags of the scripts may follow and override, as --flag=value:
# run_classifier.py, run_squad.py for cmrc2018, run_race.py for chid and c3,
# run_ner.py for cluener.
#   SIZE       tiny (default), small, base, large, xlarge or xxlarge
#   MODEL      folder or released model, instead of the released one of that size
#   CLUE_DATA  folder with a folder per task (default data/clue); if it has a
#              folder diagnostics, ocnli and cmnli predict the test.json there
#   OUTPUT     folder for a folder per task (default output/clue for tiny,
#              output/clue_SIZE for other sizes)
#   TEAM       name in the submission, OUTPUT/submit_TEAM_DATE.zip (default
#              albert)
set -euo pipefail
shopt -s nullglob
cd "$(dirname "$0")"

# Those of the board are published by CLUE. 10/4: 10 for tiny and small, else 4.
declare -A recipes=( # length, batch, epochs, rate of tiny
  [afqmc]="128 16 3 2e-5"
  [tnews]="128 16 3 2e-5"
  [iflytek]="128 32 3 2e-5"
  [ocnli]="128 32 3 2e-5"
  [cmnli]="128 64 2 3e-5"
  [wsc]="128 16 10 1e-5"
  [csl]="128 16 5 1e-5"
  [cmrc2018]="512 32 2 3e-5"
  [chid]="64 24 3 2e-5"
  [c3]="512 24 8 2e-5"
  [cluener]="64 32 10/4 1e-4")
names=${!recipes[*]}
source albert/shell.sh
usage "${names// /|}|cluewsc2020|-.*" "$@"
read_size
tasks=() flags=(--do_train --do_eval)
for word in "$@"; do
  case $word in
    -*) flags+=("$word") ;;
    *) tasks+=("${word/#cluewsc2020/wsc}") ;;
  esac
done
[[ ${#tasks[@]} -gt 0 ]] ||
  tasks=(afqmc tnews iflytek ocnli cmnli wsc csl cmrc2018 chid c3)

source ./env.sh
data=${CLUE_DATA:-data/clue} out=output/clue
[[ $size == tiny ]] || out+=_$size
out=${OUTPUT:-$out}
find_model
for task in "${tasks[@]}"; do
  "$PYTHON" -m albert.download --item="$task" --target="$data/$task"
done
for task in "${tasks[@]}"; do
  read -r length batch epochs rate <<<"${recipes[$task]}"
  case $size in
    tiny | small) epochs=${epochs%/*} ;;
    *) epochs=${epochs#*/} ;;
  esac
  command=(run_classifier.py --data_dir="$data/$task")
  tests=("$data/$task"/*test*)
  case $task in
    cmrc2018)
      command=(run_squad.py --train_file="$data/$task/train.json"
        --dev_file="$data/$task/dev.json" --max_answer_length=50
        ${tests[0]:+--test_file="${tests[0]}"}) ;;
    chid | c3) command=(run_race.py --data_dir="$data/$task") ;;
    # One row of its training set has nested entities.
    cluener) command=(run_ner.py --data_dir="$data/$task" --skip_bad_rows) ;;
  esac
  "$PYTHON" "${command[@]}" --task_name="$task" ${tests[0]:+--do_predict} \
    --init_checkpoint="$model" --max_seq_length="$length" \
    --train_batch_size=$((batch < max_batch ? batch : max_batch)) \
    --learning_rate="${size_rate:-$rate}" --num_train_epochs="$epochs" \
    --output_dir="$out/$task" "${flags[@]}"
done

# By name, so that OCNLI's answers to the diagnostic set replace CMNLI's.
declare -A submissions=()
for path in "$out"/*/*_predict.json; do
  if [[ $path != */cluener_predict.json ]]; then # not of the board
    submissions[${path##*/}]=$path
  fi
done
if [[ ${#submissions[@]} -gt 0 ]]; then
  archive=$out/submit_${TEAM:-albert}_$(date +%Y-%m-%d).zip
  "$PYTHON" -m zipfile -c "$archive.tmp" "${submissions[@]}"
  mv "$archive.tmp" "$archive"
  echo "$archive has ${!submissions[*]}"
fi
[[ -z $notice ]] || echo "$notice"
echo "dev results of the best checkpoints:"
for task in "${tasks[@]}"; do
  results=$out/$task/best/eval_results.txt metric=eval_accuracy
  case $task in
    cmrc2018) metric=eval_exact ;;
    cluener) metric=eval_f1 ;;
  esac
  printf '%-10s%s = %s  %s, %s parameters, %s steps  %s\n' "$task" $metric \
    "$(result $metric "$results")" "$(result init_checkpoint "$results")" \
    "$(result parameters "$results")" "$(result global_step "$results")" \
    "$(echo "$out/$task"/*_predict.json)"
done
