"""Vocabularies: made from text, or extended by words."""
