"""Checks of the notebooks and the built book: each takes one thing and returns its faults as text.

They are plain functions, so that a test of the tests can hand them a broken copy and see the fault.
"""
