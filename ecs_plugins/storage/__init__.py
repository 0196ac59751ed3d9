"""Databases: what one has to be able to do, SQLite files, PostgreSQL servers."""
