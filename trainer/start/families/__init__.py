"""Families: the settings and files of models of `transformers`, a module for each kind; `table` lists them."""
