"""Bounded memory on long chats."""
