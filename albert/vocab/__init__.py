"""Builds vocabularies from text, and adds words to them."""
