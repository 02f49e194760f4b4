"""Generators of conversations, one module for each skill.  Every answer is a function of the prompt, stories excepted."""
