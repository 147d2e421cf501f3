"""Configurations of training code, edited in place: the named values change and not one other byte."""
