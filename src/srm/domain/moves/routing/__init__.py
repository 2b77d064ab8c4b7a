"""Routes of topics and groups, and orders to redirectors."""
