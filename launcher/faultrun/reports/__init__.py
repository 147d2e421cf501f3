"""The report of a run as JSON, Markdown and one HTML file: text made from an account."""
