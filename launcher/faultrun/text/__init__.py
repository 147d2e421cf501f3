"""Readers and small edits of texts that know where everything stands: text in, values out, no I/O."""
