"""Services of other sites, and lists merged from all of them."""
