#!/usr/bin/env bash
# Makes the records that run_pretraining.sh trains on and evaluates:
#   TEXT='my_text/*.txt' HELDOUT_TEXT=my_heldout.txt bash create_pretrain_data.sh
#   TEXT          training text, globs (default: the sample text)
#   HELDOUT_TEXT  text to evaluate on, kept out of TEXT (default: the sample's)
#   HELDOUT_SHARE instead: share of TEXT's documents to evaluate on, such as 0.01
#   OUTPUT        folder for train/, 10 files, and heldout/, one file (default
#                 output/pretrain, where run_pretraining.sh looks)
#   PRESET        published (default) or two_cores, as for run_pretraining.sh
# Other flags of create_pretraining_data.py may follow and override, as
# --flag=value.
set -euo pipefail
cd "$(dirname "$0")"
source albert/shell.sh && usage "-.*" "$@"

for flag in "$@"; do
  case $flag in
    --input_file* | --output_file* | --output_dir* | --num_output_shards*)
      refuse "${flag%%=*}" "write TEXT=... HELDOUT_TEXT=... OUTPUT=..." ;;
  esac
done
case ${PRESET:-published} in
  published)
    flags=(--masking=word --max_seq_length=512
      --max_predictions_per_seq=51 --masked_lm_prob=0.10 --dupe_factor=10) ;;
  two_cores)
    flags=(--masking=token --max_seq_length=64 --max_predictions_per_seq=25
      --masked_lm_prob=0.4 --short_seq_prob=0 --dupe_factor=1) ;;
  *) refuse "PRESET=$PRESET" "it can be published or two_cores" ;;
esac

source ./env.sh
make_records() { # text, folder, number of files, flags
  "$PYTHON" create_pretraining_data.py --input_file="$1" --output_dir="$2" \
    --num_output_shards="$3" --vocab_file=albert_config/vocab.txt "${@:4}"
}
output=${OUTPUT:-output/pretrain} text=${TEXT:-data/text_train.txt}
if [[ -n ${HELDOUT_SHARE-} ]]; then
  [[ -z ${HELDOUT_TEXT-} ]] ||
    refuse "HELDOUT_SHARE=$HELDOUT_SHARE" "leave out HELDOUT_TEXT"
  flags+=(--heldout_share="$HELDOUT_SHARE")
  make_records "$text" "$output/train" 10 "${flags[@]}" "$@"
  make_records "$text" "$output/heldout" 1 --only_heldout "${flags[@]}" "$@"
  exit
fi
heldout=${HELDOUT_TEXT:-data/text_heldout.txt}
make_records "$text" "$output/train" 10 --heldout_file="$heldout" \
  "${flags[@]}" "$@"
make_records "$heldout" "$output/heldout" 1 "${flags[@]}" "$@"
