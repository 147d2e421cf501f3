"""Stands for scikit-learn where an example wants nothing of it but its digits: the import takes a second."""
