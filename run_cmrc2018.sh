#!/usr/bin/env bash
# Fine-tunes on CMRC2018: bash run_cmrc2018.sh [flags of run_squad.py]
# What is not there is fetched.
#   SIZE       tiny (default), small, base, large, xlarge or xxlarge: the rate,
#              the epochs and the model that is fetched
#   MODEL_DIR  folder of the checkpoint, in place of that
#   DATA       folder with train.json and dev.json (default data/clue/cmrc2018)
set -euo pipefail
cd "$(dirname "$0")"
size=${SIZE:-tiny}
case $size in # model, batch, rate, epochs
  tiny) settings="albert_tiny 32 1e-4 3" ;;
  small) settings="albert_small_zh_google 32 1e-4 3" ;;
  base) settings="albert_base_zh 32 3e-5 2" ;;
  large) settings="albert_large_zh 24 2e-5 2" ;;
  xlarge) settings="albert_xlarge_zh_183k 24 2e-5 2" ;;
  xxlarge) settings="- 16 1e-5 2" ;;
  *) echo "ERROR: SIZE=$size: tiny, small, base, large, xlarge, xxlarge" >&2
    exit 1 ;;
esac
read -r item batch rate epochs <<<"$settings"
source ./env.sh
model=${MODEL_DIR:-$item} data=${DATA:-data/clue/cmrc2018}
if [[ -z ${MODEL_DIR-} ]]; then
  if [[ $item == - ]]; then
    echo "ERROR: no xxlarge model is known to fetch: set MODEL_DIR" >&2
    exit 1
  fi
  "$PYTHON" download.py --item="$item" --target="$model"
fi
"$PYTHON" download.py --item=cmrc2018 --target="$data"
"$PYTHON" run_squad.py --task_name=cmrc2018 --do_train --do_eval \
  --train_file="$data/train.json" --dev_file="$data/dev.json" \
  --init_checkpoint="$model" --max_seq_length=512 --max_answer_length=50 \
  --train_batch_size="$batch" --learning_rate="$rate" \
  --num_train_epochs="$epochs" --output_dir="output/cmrc2018_$size" "$@"
