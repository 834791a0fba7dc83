"""Bitmap indexes that cover many row groups at once: sorted postings."""
