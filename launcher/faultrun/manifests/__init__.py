"""Kubernetes manifests and batch scripts: rendering our own, checking any. Texts in, texts out."""
