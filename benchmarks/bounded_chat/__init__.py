"""A bounded memory on long chats: what it still knows at the end."""
