"""What a config may say, and how it is read and changed."""
