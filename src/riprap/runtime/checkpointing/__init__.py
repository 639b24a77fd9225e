"""Saving protected operators while batches go on, and bringing them back."""
