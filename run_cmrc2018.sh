#!/usr/bin/env bash
# Fine-tunes on CMRC2018: bash run_cmrc2018.sh [flags of run_squad.py]
# What is not there is downloaded; albert_tiny_starter stands in for a model that
# cannot be.
#   SIZE       tiny (default), small, base, large, xlarge or xxlarge
#   MODEL_DIR  folder of the checkpoint, instead of the one downloaded for SIZE
#   DATA       folder of the data set (default data/clue/cmrc2018): train.json
#              and dev.json
# With TASK=c3 (see run_c3.sh), on C3.
set -euo pipefail
cd "$(dirname "$0")"
task=${TASK:-cmrc2018}
data=${DATA:-data/clue/$task}
case $task in
  cmrc2018)
    command=(run_squad.py --train_file="$data/train.json"
      --dev_file="$data/dev.json" --max_answer_length=50) ;;
  c3) command=(run_race.py --data_dir="$data") ;;
  *) echo "ERROR: TASK=$task: cmrc2018 or c3" >&2; exit 2 ;;
esac
size=${SIZE:-tiny}
case $size in
  tiny) name=albert_tiny batch=32 rate=1e-4 epochs=3 ;;
  small) name=albert_small_zh_google batch=32 rate=1e-4 epochs=3 ;;
  base) name=albert_base_zh batch=32 rate=3e-5 epochs=2 ;;
  large) name=albert_large_zh batch=24 rate=2e-5 epochs=2 ;;
  xlarge) name=albert_xlarge_zh_183k batch=24 rate=2e-5 epochs=2 ;;
  xxlarge) name=albert_xxlarge_zh_google batch=16 rate=1e-5 epochs=2 ;;
  *)
    echo "ERROR: SIZE=$size: tiny, small, base, large, xlarge or xxlarge" >&2
    exit 2 ;;
esac

source ./env.sh
model=${MODEL_DIR-}
[[ -n $model ]] || model=$("$PYTHON" download.py --or_starter \
  --item="$name" --target="$name")
"$PYTHON" download.py --item="$task" --target="$data"
"$PYTHON" "${command[@]}" --task_name="$task" --do_train --do_eval \
  --init_checkpoint="$model" --max_seq_length=512 \
  --train_batch_size="$batch" --learning_rate="$rate" \
  --num_train_epochs="$epochs" --output_dir="output/${task}_$size" "$@"
