"""Pretraining data: documents, segment pairs, masks, records."""
