"""Configurations of training code, edited in place: the named values change and not one other byte.

Reads and writes files; decides nothing about recovery. The editors themselves
(``*_edit``, ``argv``) are pure: text in, text out.
"""
