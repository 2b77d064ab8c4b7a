"""The properties file, its keys and their precedence."""
