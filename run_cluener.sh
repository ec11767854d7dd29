#!/usr/bin/env bash
# Fine-tunes on CLUENER, writes its submission: bash run_cluener.sh [flags of
# run_ner.py, such as --crf]. What is not there is downloaded;
# albert_tiny_starter stands in for a model that cannot be.
#   SIZE       tiny (default), small, base, large, xlarge or xxlarge
#   MODEL_DIR  folder of the checkpoint, instead of the one downloaded for SIZE
#   DATA       folder of the data set (default data/clue/cluener): train.json,
#              dev.json and test.json
set -euo pipefail
cd "$(dirname "$0")"
data=${DATA:-data/clue/cluener}
size=${SIZE:-tiny}
case $size in
  tiny) name=albert_tiny rate=1e-4 epochs=10 ;;
  small) name=albert_small_zh_google rate=1e-4 epochs=10 ;;
  base) name=albert_base_zh rate=3e-5 epochs=4 ;;
  large) name=albert_large_zh rate=2e-5 epochs=4 ;;
  xlarge) name=albert_xlarge_zh_183k rate=2e-5 epochs=3 ;;
  xxlarge) name=albert_xxlarge_zh_google rate=1e-5 epochs=3 ;;
  *)
    echo "ERROR: SIZE=$size: tiny, small, base, large, xlarge or xxlarge" >&2
    exit 2 ;;
esac

source ./env.sh
model=${MODEL_DIR-}
[[ -n $model ]] || model=$("$PYTHON" download.py --or_starter \
  --item="$name" --target="$name")
"$PYTHON" download.py --item=cluener --target="$data"
# One row of the training set has an entity within another.
"$PYTHON" run_ner.py --task_name=cluener --data_dir="$data" --skip_bad_rows \
  --do_train --do_eval --do_predict --init_checkpoint="$model" \
  --max_seq_length=64 --train_batch_size=32 --learning_rate="$rate" \
  --num_train_epochs="$epochs" --output_dir="output/cluener_$size" "$@"
