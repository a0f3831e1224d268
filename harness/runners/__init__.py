"""Runs claims in other processes: with other versions, on other machines, on many models."""
