"""Databases: the interface, SQLite files and PostgreSQL servers."""
