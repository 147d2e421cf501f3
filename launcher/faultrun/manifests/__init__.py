"""Kubernetes manifests and batch scripts: rendering our own, checking anybody's. Texts in, texts out."""
