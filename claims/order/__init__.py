"""What attention without positions knows about order (document 001)."""
