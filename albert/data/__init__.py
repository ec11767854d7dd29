"""Text and what pretraining reads of it: documents, pairs, masks, records."""
